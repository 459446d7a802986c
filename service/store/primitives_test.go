package store

import (
	"context"
	"testing"

	"tessera.dev/service/tinker"
)

func TestRowsOfPrimitivesOutliveTheProcess(t *testing.T) {
	folder := t.TempDir()
	s, err := Open(folder, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, row := range []tinker.Row{{Kind: "run", ID: "a", Tenant: "t", Parent: "p", Data: []byte("1")}, {Kind: "run", ID: "b", Tenant: "t", Parent: "q", Data: []byte("2")},
		{Kind: "run", ID: "c", Tenant: "u", Parent: "p", Data: []byte("3")}, {Kind: "run", ID: "a", Tenant: "t", Parent: "p", Data: []byte("4")}} {
		if err := s.PutRow(ctx, row); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < 2; i++ {
		if err := s.AddUsage(ctx, []tinker.Count{{Hour: 3600, Tenant: "t", Kind: "training", Count: 5}}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if s, err = Open(folder, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	row, found, err := s.Row(ctx, "run", "a")
	if err != nil || !found || string(row.Data) != "4" || row.Tenant != "t" || row.Parent != "p" {
		t.Fatalf("found %+v %v %v", row, found, err)
	}
	for _, each := range []struct {
		query tinker.RowQuery
		ids   string
		all   int
	}{
		{tinker.RowQuery{Kind: "run", Tenant: "t"}, "ba", 2}, {tinker.RowQuery{Kind: "run", AnyTenant: true}, "cba", 3},
		{tinker.RowQuery{Kind: "run", Tenant: "t", Parent: "p"}, "a", 1}, {tinker.RowQuery{Kind: "run", AnyTenant: true, Limit: 1, Offset: 1}, "b", 3},
		{tinker.RowQuery{Kind: "none", AnyTenant: true}, "", 0},
	} {
		rows, all, err := s.Rows(ctx, each.query)
		ids := ""
		for _, row := range rows {
			ids += row.ID
		}
		if err != nil || ids != each.ids || all != each.all {
			t.Errorf("%+v: found %q of %d (%v), wanted %q of %d", each.query, ids, all, err, each.ids, each.all)
		}
	}
	counts, err := s.Usage(ctx, "t", 0, 7200)
	if err != nil || len(counts) != 1 || counts[0].Count != 10 {
		t.Fatalf("found %+v %v", counts, err)
	}
	if counts, _ = s.Usage(ctx, "u", 0, 7200); len(counts) != 0 {
		t.Fatalf("another tenant sees %+v", counts)
	}
	if err := s.DropRow(ctx, "run", "a"); err != nil {
		t.Fatal(err)
	}
	if _, found, _ = s.Row(ctx, "run", "a"); found {
		t.Fatal("the row is still there")
	}
}
