package holder

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"gpuard/internal/app/engine"
	"gpuard/internal/host/proc"
)

// TestOrders: orders are read as they were written.
func TestOrders(t *testing.T) {
	for _, o := range []Orders{
		{Folder: "/run/gpuard", Lease: "k3f9", Starter: 42},
		{Folder: "/a b", Lease: "k3f9", Until: 1 << 60, InTime: &Process{PID: 7, Start: 1 << 63}},
		{Folder: "/x", Lease: "k3f9", Containers: &engine.Watch{Lease: "k3f9", Names: []string{"one\ntwo"}}},
		{Folder: "/x", Lease: "k3f9", NextStart: &NextStart{While: []byte("/home/ann/k\xffrnel.json"), Parent: Process{PID: 8, Start: 9}}},
	} {
		words, err := o.Words()
		if err != nil || words[0] != o.Folder || words[1] != o.Lease {
			t.Errorf("%q, %v", words, err)
		}
		got := Orders{Folder: words[0], Lease: words[1]}
		if err := json.Unmarshal([]byte(words[2]), &got); err != nil || !reflect.DeepEqual(got, o) {
			t.Errorf("%+v has become %+v, %v", o, got, err)
		}
	}
}

// TestProcess: a process is meant by its number and its start.
func TestProcess(t *testing.T) {
	s, err := proc.New("/proc").Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self, other := Process{os.Getpid(), s.Start}, Process{os.Getpid(), s.Start + 1}
	pidfd, err := self.openPidfd()
	if err != nil || !self.isAlive() {
		t.Fatal(err)
	}
	_ = pidfd.Close()
	if _, err := other.openPidfd(); err == nil || other.isAlive() {
		t.Error("another process with its number is taken for it")
	}
}
