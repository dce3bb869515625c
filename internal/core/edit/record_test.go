package edit

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestRecord: the record has the written and the intended text, either of which may be found after a kill; afterwards
// it has no older texts.
func TestRecord(t *testing.T) {
	var r Record
	file := Change{Path: "/f", Content: "two\n"}
	block := Change{Path: "/f", Block: "x", Comment: ";", Content: "two\n"}
	says := func(when, want string) {
		t.Helper()
		if got, err := json.Marshal(r.Entries); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", when, got, err, want)
		}
	}
	one, two := TextSum("one\n"), TextSum("two\n")
	r.RecordIntent("a", Step{Change: file, Action: Create, After: "one\n"})
	says("created", `[{"setup":"a","path":"/f","sums":["`+one+`"],"made":true}]`)
	kept := slices.Clone(r.Entries)
	for range 2 {
		r.RecordIntent("b", Step{Change: file, Action: Update, After: "two\n"})
		says("about to be changed", `[{"setup":"b","path":"/f","sums":["`+one+`","`+two+`"],"made":true}]`)
	}
	r.RecordIntent("b", Step{Change: block, Action: Insert, After: "mine\n"})
	blocks := `,{"setup":"b","path":"/f","block":"x","comment":";"}]`
	r.RecordDone(Step{Change: block, Action: Insert, After: "mine\n"})
	says("a further block", `[{"setup":"b","path":"/f","sums":["`+one+`","`+two+`"],"made":true}`+blocks)
	r.RecordDone(Step{Change: file, Action: Update, After: "two\n"})
	says("changed", `[{"setup":"b","path":"/f","sums":["`+two+`"],"made":true}`+blocks)
	if known := r.KnownSums(file); !slices.Equal(known, []string{two}) {
		t.Errorf("of the file it knows %q", known)
	}
	if known := r.KnownSums(block); known == nil || len(known) > 0 {
		t.Errorf("of the block it knows %q", known)
	}
	if known := r.KnownSums(Change{Path: "/other"}); known != nil {
		t.Errorf("of another file it knows %q", known)
	}
	if mine := r.EntriesOf("b"); len(mine) != 2 || mine[1].RemovalChange() != (Change{Path: "/f", Block: "x", Comment: ";"}) || len(r.EntriesOf("a")) > 0 {
		t.Errorf("%+v", mine)
	}
	r.DropEntry("/f", "")
	says("forgotten", "["+blocks[1:])
	r.Entries = kept
	says("taken back", `[{"setup":"a","path":"/f","sums":["`+one+`"],"made":true}]`)
}
