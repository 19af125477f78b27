// SPDX-License-Identifier: Apache-2.0

// Times iceberg-go against an Iceberg REST catalog: main URI WAREHOUSE TOKEN NAMESPACE TABLE APPENDS ROWS
//
// It creates a table in a namespace that exists, appends so many rows again and again, each a commit, loads the table
// after each, and reads it back at the end. It prints one JSON object; times are in milliseconds. With the word `engine`
// as the first of four arguments it does what engine.go says instead.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/table"
)

type timings struct {
	CreateMs float64   `json:"create_ms"`
	AppendMs []float64 `json:"append_ms"`
	LoadMs   []float64 `json:"load_ms"`
	Rows     int64     `json:"rows"`
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 4 && args[0] == "engine" {
		return engine(ctx, args[1], args[2], args[3])
	}
	if len(args) != 7 {
		return fmt.Errorf("expected 7 arguments, found %d", len(args))
	}
	appends, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	rows, err := strconv.Atoi(args[6])
	if err != nil {
		return err
	}
	options := []rest.Option{rest.WithWarehouseLocation(args[1])}
	if args[2] != "" {
		options = append(options, rest.WithOAuthToken(args[2]))
	}
	catalog, err := rest.NewCatalog(ctx, "bench", args[0], options...)
	if err != nil {
		return err
	}
	name := table.Identifier{args[3], args[4]}
	schema := iceberg.NewSchema(0,
		iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64},
		iceberg.NestedField{ID: 2, Name: "name", Type: iceberg.PrimitiveTypes.String})
	var found timings
	began := time.Now()
	if _, err = catalog.CreateTable(ctx, name, schema); err != nil {
		return err
	}
	found.CreateMs = since(began)
	tbl, err := catalog.LoadTable(ctx, name)
	if err != nil {
		return err
	}
	for number := range appends {
		began = time.Now()
		if tbl, err = tbl.AppendTable(ctx, people(number*rows, rows), int64(rows), nil); err != nil {
			return err
		}
		found.AppendMs = append(found.AppendMs, since(began))
		began = time.Now()
		if tbl, err = catalog.LoadTable(ctx, name); err != nil {
			return err
		}
		found.LoadMs = append(found.LoadMs, since(began))
	}
	read, err := tbl.Scan().ToArrowTable(ctx)
	if err != nil {
		return err
	}
	found.Rows = read.NumRows()
	return json.NewEncoder(os.Stdout).Encode(found)
}

func people(first, count int) arrow.Table {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for number := range count {
		builder.Field(0).(*array.Int64Builder).Append(int64(first + number))
		builder.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("name %d", first+number))
	}
	return array.NewTableFromRecords(schema, []arrow.RecordBatch{builder.NewRecordBatch()})
}

func since(began time.Time) float64 {
	return float64(time.Since(began).Microseconds()) / 1e3
}
