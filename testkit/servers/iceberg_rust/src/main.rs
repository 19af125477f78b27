// SPDX-License-Identifier: Apache-2.0

//! What iceberg-rust does with a catalog: `iceberg_rust engine|guarded URI WAREHOUSE NAMESPACE`, the API key in
//! LAKEPROOF_KEY.
//!
//! It prints one JSON object: what it found in each of its steps. An error goes to stderr with its causes.

use std::collections::HashMap;
use std::env;
use std::error::Error as _;
use std::iter;
use std::process::ExitCode;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::DataType;
use futures::{TryStreamExt, try_join};
use iceberg::arrow::{RecordBatchPartitionSplitter, schema_to_arrow_schema};
use iceberg::expr::Reference;
use iceberg::io::LocalFsStorageFactory;
use iceberg::scan::TableScanBuilder;
use iceberg::spec::{
    DataFile, DataFileFormat, Datum, FormatVersion, NestedField, NullOrder, PrimitiveType, Schema,
    Transform, Type, UnboundPartitionSpec,
};
use iceberg::table::Table;
use iceberg::transaction::{AddColumn, ApplyTransactionAction, Transaction};
use iceberg::writer::base_writer::data_file_writer::DataFileWriterBuilder;
use iceberg::writer::file_writer::ParquetWriterBuilder;
use iceberg::writer::file_writer::location_generator::{
    DefaultFileNameGenerator, DefaultLocationGenerator,
};
use iceberg::writer::file_writer::rolling_writer::RollingFileWriterBuilder;
use iceberg::writer::partitioning::PartitioningWriter;
use iceberg::writer::partitioning::fanout_writer::FanoutWriter;
use iceberg::writer::{IcebergWriter, IcebergWriterBuilder};
use iceberg::{
    Catalog, CatalogBuilder, Error, ErrorKind, NamespaceIdent, Result, TableCreation, TableIdent,
};
use iceberg_catalog_rest::{RestCatalog, RestCatalogBuilder};
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

const STRING: Type = Type::Primitive(PrimitiveType::String);
const LONG: Type = Type::Primitive(PrimitiveType::Long);

#[tokio::main]
async fn main() -> ExitCode {
    match run(env::args().skip(1).collect()).await {
        Ok(found) => {
            println!("{found}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            let causes = iter::successors(error.source(), |&cause| cause.source());
            causes.for_each(|cause| eprintln!("caused by: {cause}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Vec<String>) -> Result<Value> {
    let [what, uri, warehouse, namespace] = arguments.as_slice() else {
        let found = format!("expected 4 arguments, found {}", arguments.len());
        return Err(Error::new(ErrorKind::DataInvalid, found));
    };
    let lake = connect(uri, warehouse).await?;
    let namespace = NamespaceIdent::new(namespace.clone());
    match what.as_str() {
        "engine" => Ok(json!({
            "namespaces": namespaces(&lake, &namespace).await?,
            "rows": rows(&lake, &namespace).await?,
            "partitions": partitions(&lake, &namespace).await?,
            "changes": changes(&lake, &namespace).await?,
            "raced": raced(&lake, &namespace).await?,
            "names": names(&lake, &namespace).await?,
        })),
        "guarded" => guarded(&lake, &namespace).await,
        other => {
            let found = format!("expected 'engine' or 'guarded', found '{other}'");
            Err(Error::new(ErrorKind::DataInvalid, found))
        }
    }
}

async fn connect(uri: &str, warehouse: &str) -> Result<RestCatalog> {
    let key = env::var("LAKEPROOF_KEY").unwrap_or_default();
    let properties = [("uri", uri), ("warehouse", warehouse), ("token", &key)];
    let lake = RestCatalogBuilder::default()
        .with_storage_factory(Arc::new(LocalFsStorageFactory))
        .load(
            "lake",
            HashMap::from(properties.map(|(name, value)| (name.to_string(), value.to_string()))),
        )
        .await?;
    Ok(lake)
}

async fn namespaces(lake: &RestCatalog, namespace: &NamespaceIdent) -> Result<Value> {
    let properties = HashMap::from([("team".to_string(), "ada".to_string())]);
    lake.create_namespace(namespace, properties.clone()).await?;
    let inner = NamespaceIdent::from_strs([&namespace[0], "inner"])?;
    lake.create_namespace(&inner, HashMap::new()).await?;
    let listed = lake.list_namespaces(Some(namespace)).await?;
    let updated = lake.update_namespace(namespace, properties).await;
    lake.drop_namespace(&inner).await?;
    Ok(json!({
        "properties": lake.get_namespace(namespace).await?.properties(),
        "inner": listed.iter().map(|one| one.join(".")).collect::<Vec<_>>(),
        "updated": updated.err().map(|error| error.to_string()),
        "exist": [lake.namespace_exists(namespace).await?, lake.namespace_exists(&inner).await?],
    }))
}

async fn rows(lake: &RestCatalog, namespace: &NamespaceIdent) -> Result<Value> {
    let empty = create(
        lake,
        namespace,
        "orders",
        &[("old", "1"), ("commit.retry.num-retries", "0")],
        None,
    )
    .await?;
    let first = append(lake, &empty, 0, 6).await?;
    let second = append(lake, &first, 6, 2).await?;
    let snapshot = first.metadata().current_snapshot_id().unwrap_or_default();
    let below = Reference::new("id").less_than(Datum::long(2));
    Ok(json!({
        "empty": ids(empty.scan()).await?,
        "first": ids(first.scan()).await?,
        "second": ids(second.scan()).await?,
        "before": ids(second.scan().snapshot_id(snapshot)).await?,
        "filtered": ids(second.scan().with_filter(below)).await?,
        "operations": operations(&second).await?,
    }))
}

async fn partitions(lake: &RestCatalog, namespace: &NamespaceIdent) -> Result<Value> {
    let by_kind = UnboundPartitionSpec::builder()
        .with_spec_id(0) // Iceberg's own server answers 500 to one without an id
        .add_partition_field(2, "kind", Transform::Identity)?
        .build();
    let sharded = create(lake, namespace, "sharded", &[], Some(by_kind)).await?;
    let sharded = append(lake, &sharded, 0, 4).await?;
    let odd = Reference::new("kind").equal_to(Datum::string("odd"));
    let scan = sharded.scan().with_filter(odd.clone()).build()?;
    let files = scan.plan_files().await?.try_collect::<Vec<_>>().await?;
    Ok(json!({
        "all": ids(sharded.scan()).await?,
        "odd": ids(sharded.scan().with_filter(odd)).await?,
        "files": files.len(),
    }))
}

async fn changes(lake: &RestCatalog, namespace: &NamespaceIdent) -> Result<Value> {
    let orders = lake.load_table(&named(namespace, "orders")).await?;
    // The other way round, the crate asserts the id of a schema that the server does not have yet.
    let change = sort(columns(Transaction::new(&orders))?)?;
    let refused = change.commit(lake).await;
    let change = columns(sort(Transaction::new(&orders))?)?;
    let change = change
        .update_table_properties()
        .set("owner".to_string(), "ada".to_string())
        .remove("old".to_string())
        .apply(change)?;
    let change = change
        .upgrade_table_version()
        .set_format_version(FormatVersion::V3)
        .apply(change)?;
    let orders = change.commit(lake).await?;
    let orders = append(lake, &orders, 8, 1).await?;
    let current = orders.metadata().current_snapshot_id();
    let earlier = orders.metadata().snapshots().map(|one| one.snapshot_id());
    let earlier: Vec<i64> = earlier.filter(|id| Some(*id) != current).collect();
    let change = Transaction::new(&orders);
    let change = change
        .expire_snapshots()
        .expire_snapshot_ids(earlier)
        .apply(change)?;
    let orders = change.commit(lake).await?;
    let schema = orders.metadata().current_schema();
    let fields = schema.as_struct().fields().iter();
    let sorted = orders.metadata().default_sort_order().fields.iter();
    let properties = orders.metadata().properties();
    Ok(json!({
        "columns": fields.map(|field| field.name.as_str()).collect::<Vec<_>>(),
        "properties": {"owner": properties.get("owner"), "old": properties.get("old")},
        "refused": refused.err().map(|error| error.to_string()),
        "sorted": sorted.map(|field| json!([field.source_id, field.direction.to_string()])).collect::<Vec<_>>(),
        "version": orders.metadata().format_version().to_string(),
        "snapshots": operations(&orders).await?,
        "rows": ids(orders.scan()).await?,
    }))
}

fn columns(change: Transaction) -> Result<Transaction> {
    change
        .update_schema()
        .add_column(AddColumn::optional("note", STRING))
        .delete_column("kind")
        .apply(change)
}

fn sort(change: Transaction) -> Result<Transaction> {
    change
        .replace_sort_order()
        .desc("id", NullOrder::Last)
        .apply(change)
}

async fn raced(lake: &RestCatalog, namespace: &NamespaceIdent) -> Result<Value> {
    let retries = [("commit.retry.num-retries", "20")];
    let raced = create(lake, namespace, "raced", &retries, None).await?;
    let write = async |first: i64| -> Result<()> {
        for number in first..first + 4 {
            append(lake, &raced, number, 1).await?;
        }
        Ok(())
    };
    try_join!(write(0), write(100))?;
    let raced = lake.load_table(raced.identifier()).await?;
    Ok(json!(ids(raced.scan()).await?))
}

async fn names(lake: &RestCatalog, namespace: &NamespaceIdent) -> Result<Value> {
    let [orders, invoices, raced, again] =
        ["orders", "invoices", "raced", "again"].map(|name| named(namespace, name));
    lake.rename_table(&orders, &invoices).await?;
    let renamed = ids(lake.load_table(&invoices).await?.scan().select(["id"])).await?;
    let absent = lake.load_table(&orders).await;
    let mut listed = lake.list_tables(namespace).await?;
    listed.sort();
    let metadata = lake.load_table(&raced).await?;
    let metadata = metadata.metadata_location_result()?;
    lake.drop_table(&raced).await?;
    let registered = match lake.register_table(&again, metadata.to_string()).await {
        Ok(table) => json!(ids(table.scan()).await?),
        Err(error) => json!(error.to_string()),
    };
    for name in ["again", "invoices", "sharded"] {
        let table = named(namespace, name);
        if lake.table_exists(&table).await? {
            lake.purge_table(&table).await?;
        }
    }
    lake.drop_namespace(namespace).await?;
    Ok(json!({
        "renamed": renamed,
        "absent": absent.err().map(|error| error.to_string()),
        "listed": listed.iter().map(|table| table.name()).collect::<Vec<_>>(),
        "registered": registered,
        "exist": [lake.table_exists(&invoices).await?, lake.namespace_exists(namespace).await?],
    }))
}

/// Tries to take a column from the table `guarded`, then appends a row.
async fn guarded(lake: &RestCatalog, namespace: &NamespaceIdent) -> Result<Value> {
    lake.create_namespace(namespace, HashMap::new()).await?;
    let guarded = create(lake, namespace, "guarded", &[], None).await?;
    let change = Transaction::new(&guarded);
    let change = change.update_schema().delete_column("kind").apply(change)?;
    let refused = change.commit(lake).await;
    let guarded = append(lake, &guarded, 0, 1).await?;
    Ok(json!({
        "refused": refused.err().map(|error| error.to_string()),
        "rows": ids(guarded.scan()).await?,
    }))
}

async fn create(
    lake: &RestCatalog,
    namespace: &NamespaceIdent,
    name: &str,
    properties: &[(&str, &str)],
    partition_spec: Option<UnboundPartitionSpec>,
) -> Result<Table> {
    let schema = Schema::builder()
        .with_fields([
            NestedField::required(1, "id", LONG).into(),
            NestedField::optional(2, "kind", STRING).into(),
        ])
        .build()?;
    let properties = properties.iter();
    let creation = TableCreation::builder()
        .name(name.to_string())
        .schema(schema)
        .partition_spec_opt(partition_spec)
        .properties(properties.map(|(name, value)| (name.to_string(), value.to_string())))
        .build();
    lake.create_table(namespace, creation).await
}

/// Appends rows with the ids from `first` on in one commit.
async fn append(lake: &RestCatalog, table: &Table, first: i64, count: i64) -> Result<Table> {
    let files = write(table, first, count).await?;
    let change = Transaction::new(table);
    let change = change.fast_append().add_data_files(files).apply(change)?;
    change.commit(lake).await
}

async fn write(table: &Table, first: i64, count: i64) -> Result<Vec<DataFile>> {
    let metadata = table.metadata();
    let schema = metadata.current_schema();
    let name = format!("from-{first}");
    let files = RollingFileWriterBuilder::new_with_default_file_size(
        ParquetWriterBuilder::new(WriterProperties::default(), schema.clone()),
        table.file_io().clone(),
        DefaultLocationGenerator::new(metadata)?,
        DefaultFileNameGenerator::new(name, None, DataFileFormat::Parquet),
    );
    let writers = DataFileWriterBuilder::new(files);
    let batch = batch(schema, first, count)?;
    let spec = metadata.default_partition_spec();
    if spec.is_unpartitioned() {
        let mut writer = writers.build(None).await?;
        writer.write(batch).await?;
        return writer.close().await;
    }
    let splitter =
        RecordBatchPartitionSplitter::try_new_with_computed_values(schema.clone(), spec.clone())?;
    let mut writer = FanoutWriter::new(writers);
    for (partition, part) in splitter.split(&batch)? {
        writer.write(partition, part).await?;
    }
    writer.close().await
}

/// Returns rows for a schema of longs and strings: a long is the row's id, a string says whether that is odd.
fn batch(schema: &Schema, first: i64, count: i64) -> Result<RecordBatch> {
    let arrow = schema_to_arrow_schema(schema)?;
    let ids = first..first + count;
    let columns = arrow.fields().iter().map(|field| -> ArrayRef {
        match field.data_type() {
            DataType::Int64 => Arc::new(Int64Array::from_iter_values(ids.clone())),
            _ => Arc::new(StringArray::from_iter_values(
                ids.clone()
                    .map(|id| if id % 2 == 0 { "even" } else { "odd" }),
            )),
        }
    });
    let columns = columns.collect();
    Ok(RecordBatch::try_new(Arc::new(arrow), columns)?)
}

async fn ids(scan: TableScanBuilder<'_>) -> Result<Vec<i64>> {
    let batches = scan.build()?.to_arrow().await?;
    let mut found = Vec::new();
    for batch in batches.try_collect::<Vec<_>>().await? {
        found.extend(batch.column(0).as_primitive::<Int64Type>().values());
    }
    found.sort();
    Ok(found)
}

/// Returns what made each snapshot, as the metadata table `snapshots` has it.
async fn operations(table: &Table) -> Result<Vec<String>> {
    let batches = table.inspect().snapshots().scan().await?;
    let mut found = Vec::new();
    for batch in batches.try_collect::<Vec<_>>().await? {
        if let Some(column) = batch.column_by_name("operation") {
            found.extend(column.as_string::<i32>().iter().flatten().map(String::from));
        }
    }
    Ok(found)
}

fn named(namespace: &NamespaceIdent, name: &str) -> TableIdent {
    TableIdent::new(namespace.clone(), name.to_string())
}
