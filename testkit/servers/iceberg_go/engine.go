// SPDX-License-Identifier: Apache-2.0

// What iceberg-go does with a catalog: main engine URI WAREHOUSE NAMESPACE, the API key in LAKEPROOF_KEY
//
// It prints one JSON object: what it found after each of its steps.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/table"
	"github.com/apache/iceberg-go/view"
)

type findings struct {
	Namespace map[string]string `json:"namespace"`
	Appended  []int64           `json:"appended"`
	Deleted   []int64           `json:"deleted"`
	Branch    []int64           `json:"branch"`
	Columns   []string          `json:"columns"`
	Owner     string            `json:"owner"`
	Partition string            `json:"partition"`
	Tables    []string          `json:"tables"`
	Renamed   []int64           `json:"renamed"`
	View      string            `json:"view"`
	Views     int               `json:"views"`
}

func engine(ctx context.Context, uri, warehouse, namespace string) error {
	key := os.Getenv("LAKEPROOF_KEY")
	lake, err := rest.NewCatalog(ctx, "lake", uri,
		rest.WithWarehouseLocation(warehouse), rest.WithOAuthToken(key))
	if err != nil {
		return err
	}
	var found findings
	for _, step := range []func(context.Context, *rest.Catalog, string, *findings) error{
		namespaces, rows, changes, names, views,
	} {
		if err = step(ctx, lake, namespace, &found); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func namespaces(ctx context.Context, lake *rest.Catalog, namespace string, found *findings) error {
	name := table.Identifier{namespace}
	if err := lake.CreateNamespace(ctx, name, iceberg.Properties{"team": "ada", "old": "1"}); err != nil {
		return err
	}
	if _, err := lake.UpdateNamespaceProperties(ctx, name, []string{"old"}, iceberg.Properties{"tier": "gold"}); err != nil {
		return err
	}
	var err error
	found.Namespace, err = lake.LoadNamespaceProperties(ctx, name)
	return err
}

func rows(ctx context.Context, lake *rest.Catalog, namespace string, found *findings) error {
	schema := iceberg.NewSchema(0,
		iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64},
		iceberg.NestedField{ID: 2, Name: "name", Type: iceberg.PrimitiveTypes.String})
	orders, err := lake.CreateTable(ctx, table.Identifier{namespace, "orders"}, schema)
	if err != nil {
		return err
	}
	if orders, err = orders.AppendTable(ctx, people(0, 6), 6, nil); err != nil {
		return err
	}
	if found.Appended, err = ids(ctx, orders.Scan()); err != nil {
		return err
	}
	if orders, err = orders.Delete(ctx, iceberg.LessThan(iceberg.Reference("id"), int64(2)), nil); err != nil {
		return err
	}
	if found.Deleted, err = ids(ctx, orders.Scan()); err != nil {
		return err
	}
	current := orders.CurrentSnapshot().SnapshotID
	update := table.NewSetSnapshotRefUpdate("dev", current, table.BranchRef, 0, 0, 0)
	absent := []table.Requirement{table.AssertRefSnapshotID("dev", nil)}
	if _, err = lake.UpdateTable(ctx, orders.Identifier(), absent, []table.Update{update}); err != nil {
		return err
	}
	if orders, err = lake.LoadTable(ctx, orders.Identifier()); err != nil {
		return err
	}
	change := orders.NewTransactionOnBranch("dev")
	if err = change.AppendTable(ctx, people(10, 1), 1, nil); err != nil {
		return err
	}
	if orders, err = change.Commit(ctx); err != nil {
		return err
	}
	found.Branch, err = ids(ctx, orders.Scan(table.WithSnapshotID(orders.SnapshotByName("dev").SnapshotID)))
	return err
}

func changes(ctx context.Context, lake *rest.Catalog, namespace string, found *findings) error {
	orders, err := lake.LoadTable(ctx, table.Identifier{namespace, "orders"})
	if err != nil {
		return err
	}
	change := orders.NewTransaction()
	if err = change.UpdateSchema(true, false).
		AddColumn([]string{"note"}, iceberg.PrimitiveTypes.String, "", false, nil).
		RenameColumn([]string{"name"}, "person").Commit(); err != nil {
		return err
	}
	if err = change.SetProperties(iceberg.Properties{"owner": "ada"}); err != nil {
		return err
	}
	if orders, err = change.Commit(ctx); err != nil {
		return err
	}
	change = orders.NewTransaction()
	if err = change.UpdateSpec(true).AddField("id", iceberg.BucketTransform{NumBuckets: 4}, "shard").Commit(); err != nil {
		return err
	}
	if orders, err = change.Commit(ctx); err != nil {
		return err
	}
	for _, field := range orders.Schema().Fields() {
		found.Columns = append(found.Columns, field.Name)
	}
	found.Owner = orders.Properties()["owner"]
	spec := orders.Spec()
	found.Partition = spec.Field(0).Name
	return nil
}

func names(ctx context.Context, lake *rest.Catalog, namespace string, found *findings) error {
	orders, invoices := table.Identifier{namespace, "orders"}, table.Identifier{namespace, "invoices"}
	renamed, err := lake.RenameTable(ctx, orders, invoices)
	if err != nil {
		return err
	}
	if found.Renamed, err = ids(ctx, renamed.Scan(table.WithSelectedFields("id"))); err != nil {
		return err
	}
	if _, err = lake.LoadTable(ctx, orders); !errors.Is(err, catalog.ErrNoSuchTable) {
		return errors.New("the old name is still there")
	}
	for name, err := range lake.ListTables(ctx, table.Identifier{namespace}) {
		if err != nil {
			return err
		}
		found.Tables = append(found.Tables, name[len(name)-1])
	}
	return lake.PurgeTable(ctx, invoices)
}

func views(ctx context.Context, lake *rest.Catalog, namespace string, found *findings) error {
	report := table.Identifier{namespace, "report"}
	schema := iceberg.NewSchema(0, iceberg.NestedField{ID: 1, Name: "one", Type: iceberg.PrimitiveTypes.Int32})
	query := []view.Representation{view.NewRepresentation("SELECT 1 AS one", "spark")}
	version, err := view.NewVersion(1, 0, query, table.Identifier{namespace})
	if err != nil {
		return err
	}
	if _, err = lake.CreateView(ctx, report, version, schema); err != nil {
		return err
	}
	made, err := lake.LoadView(ctx, report)
	if err != nil {
		return err
	}
	found.View = made.Metadata().CurrentVersion().Representations[0].Sql
	if err = lake.DropView(ctx, report); err != nil {
		return err
	}
	for _, err := range lake.ListViews(ctx, table.Identifier{namespace}) {
		if err != nil {
			return err
		}
		found.Views++
	}
	return lake.DropNamespace(ctx, table.Identifier{namespace})
}

func ids(ctx context.Context, scan *table.Scan) ([]int64, error) {
	read, err := scan.ToArrowTable(ctx)
	if err != nil {
		return nil, err
	}
	found := []int64{}
	for _, chunk := range read.Column(0).Data().Chunks() {
		found = append(found, chunk.(*array.Int64).Int64Values()...)
	}
	slices.Sort(found)
	return found, nil
}
