package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
)

// TestForeignFiles: a file in a user's folder counts only if it belongs to that user or to root.
func TestForeignFiles(t *testing.T) {
	gate.Need(t, "root")
	const (
		nothing    = "nothing"
		unreadable = "unreadable"
		whole      = "a lease"
	)
	for _, tt := range []struct {
		name          string
		lock, content int
		want          string
	}{
		{"all of it is hers", aliceUID, aliceUID, whole},
		{"root wrote it for her", 0, 0, whole},
		{"root holds it", 0, aliceUID, whole},
		{"the lock file is another's", bobUID, aliceUID, nothing},
		{"the content is another's", aliceUID, bobUID, unreadable},
		{"the content under root's lock is another's", 0, bobUID, unreadable},
		{"all of it is another's", bobUID, bobUID, nothing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newStateFolder(t)
			dir := f.userFolder(aliceUID)
			l := job.Lease{ID: "aaaa", Devices: []gpu.UUID{"GPU-a"}}
			entry := filepath.Join(dir, entryNameOf(&l))
			err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, aliceUID, aliceUID),
				os.WriteFile(entry+jsonSuffix, []byte(`{"id":"aaaa","devices":["GPU-a"],"command":"theirs"}`), 0o644), os.Chown(entry+jsonSuffix, tt.content, tt.content))
			lock, lerr := newLock(entry+lockSuffix, nil)
			if err := errors.Join(err, lerr); err != nil {
				t.Fatal(err)
			}
			defer lock.Close() //nolint:errcheck // held until here
			if err := lock.Chown(tt.lock, tt.lock); err != nil {
				t.Fatal(err)
			}
			leases, problems := f.Leases()
			got := nothing
			if len(leases) == 1 {
				if got = whole; leases[0].Unreadable {
					got = unreadable
				}
				if leases[0].UID != aliceUID || !leases[0].Holds("GPU-a") || leases[0].Unreadable != (leases[0].Command == "") {
					t.Errorf("lease %+v", leases[0])
				}
			}
			if got != tt.want {
				t.Errorf("it is %s, want %s: %+v", got, tt.want, leases)
			}
			accused := slices.ContainsFunc(problems, func(p Problem) bool {
				return p.UID == aliceUID && p.Path == entry+lockSuffix && strings.Contains(p.Text, "it belongs to uid 4002")
			})
			if accused != (tt.want != whole) || len(problems) > 1 {
				t.Errorf("problems %v", problems)
			}
			if said := startRole(t, aliceUID, "claim", f.Path, "5s", "GPU-a").readLine(); strings.HasPrefix(said, "claimed ") != (tt.want == nothing) {
				t.Errorf("alice's claim of that device: %s", said)
			}
		})
	}
}
