package batchlog

import (
	"encoding/json"
	"runtime"
	"testing"
	"time"
)

// TestSize: 100,000 runs that only wait take less than 40 MB, so that with as much garbage a runner stays below 100 MB.
func TestSize(t *testing.T) {
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	s := NewQueue()
	for run := range 100_000 {
		job := Job{Name: "train"}
		line, err := json.Marshal(Event{Kind: Submit, Run: run, At: time.Unix(0, 0), Job: &job})
		if err == nil {
			err = s.ReadLine(line, int64(run)*200)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if grown := (live() - before) >> 20; grown >= 40 {
		t.Errorf("%d MB", grown)
	} else {
		t.Logf("%d MB", grown)
	}
	runtime.KeepAlive(s)
}
