package services

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/service"
	"gpuard/internal/host/projectdir"
)

// View is a project as it is now.
type View struct {
	Name string // of the project
	File string
	// --machine of the last up.
	Machine    string
	Dir        string // the folder
	Supervised bool   // a supervisor lives
	// Those wanted in their order, then what still ends.
	Rows []Row
}

// Row is one instance.
type Row struct {
	// The instance as it is wanted; only Name where it is not wanted any more.
	service.Instance
	// The instance as it is; State and Why also say what it waits for when nothing of it was started yet.
	service.Seen
	Wanted bool
	// What is seen is of the instance as it is wanted, not of one before it.
	Fresh bool
	// File that its output goes to; the one before it is FILE.1.
	Log string
}

// IsSettled reports whether the instance stays as it is until a user acts: it is ready, or has ended for good.
func (r *Row) IsSettled() bool {
	return r.Fresh && (isOver(r.State) || r.State == service.Running && r.Seen.Ready)
}

// isOver reports whether a state is an end.
func isOver(s service.State) bool {
	return s == service.Done || s == service.Failed || s == service.Refused
}

// ProjectViews are all projects of this user that are up. What cannot be read is left out.
func ProjectViews(ctx context.Context, host *machine.Host) []*View {
	list := []*View{}
	top, err := folderOfProjects(host, false)
	if err != nil {
		return list
	}

	entries, _ := os.ReadDir(top)
	for _, entry := range entries {
		f := &Folder{host: host, path: filepath.Join(top, entry.Name())}
		folder, err := f.openFolder()
		if err != nil || folder == nil {
			continue
		}

		if wanted, err := folder.ReadWanted(); err == nil {
			f.file = wanted.File
		}

		if v, err := f.ReadView(ctx); err == nil && len(v.Rows) > 0 {
			list = append(list, v)
		}
	}

	return list
}

// ReadView reads the state of all instances.
func (f *Folder) ReadView(context.Context) (*View, error) {
	v := &View{File: f.file, Rows: []Row{}}
	folder, err := f.openFolder()
	if err != nil || folder == nil {
		return v, err
	}

	wanted, err := folder.ReadWanted()
	if err != nil {
		return nil, err
	}

	v.Name, v.Machine, v.Dir, v.Supervised = wanted.Name, wanted.Machine, folder.Path, folder.HasSupervisor()
	seen := newStateReader(f.host, folder).readAll(&wanted)
	held := service.HeldReasons(wanted.Instances, seen)
	for _, i := range wanted.Instances {
		r := Row{Instance: i, Seen: seen[i.Name], Wanted: true, Log: folder.LogPath(i.Name)}
		if own := logOf(&i); own != "" {
			r.Log = own
		}

		r.Fresh = r.Seen.Hash == i.Hash
		r.fillState(held[i.Name], i.Refused != "")
		v.Rows = append(v.Rows, r)
	}

	for _, name := range folder.Instances() {
		one := seen[name]
		if (one.Kept || one.Orphaned) && !slices.ContainsFunc(wanted.Instances, func(i service.Instance) bool { return i.Name == name }) {
			v.Rows = append(v.Rows, Row{Instance: service.Instance{Name: name, Service: one.Service}, Seen: one, Log: folder.LogPath(name)})
		}
	}

	return v, nil
}

// fillState fills in what no keeper wrote.
func (r *Row) fillState(held string, refused bool) {
	alive := r.Kept || r.Orphaned
	switch {
	case refused && !alive:
		r.Fresh = true
		r.Record = service.Record{State: service.Refused, Why: held, Last: r.Last}
	case alive && r.State == "":
		r.State = service.Starting
	case alive && !r.Kept:
		r.Why = "the gpuard beside it is gone; gpuard up -d puts another there"
	case alive, r.Fresh && isOver(r.State):
	case held != "":
		r.Record = service.Record{State: service.Waiting, Why: held, Last: r.Last}
	case r.Fresh && (r.State == service.Running || r.State == service.Ending):
		r.State, r.Why, r.Seen.Ready, r.Seen.Healthy = service.Failed, "it was killed together with the gpuard beside it", false, nil
	default:
		r.Record = service.Record{State: service.Waiting, Why: "not started yet", Last: r.Last}
	}
}

// stateReader reads which processes of instances exist.
type stateReader struct {
	host   *machine.Host
	folder *projectdir.Folder
	boot   string
}

func newStateReader(host *machine.Host, folder *projectdir.Folder) *stateReader {
	// Where that cannot be read, records of another boot are not told from ours.
	boot, _ := host.Proc.BootID()
	return &stateReader{host, folder, boot}
}

// readAll are the instances that are wanted, and those that live without that.
func (l *stateReader) readAll(wanted *service.Wanted) map[string]service.Seen {
	seen := map[string]service.Seen{}
	for _, i := range wanted.Instances {
		seen[i.Name] = l.readInstance(i.Name, i.Hash)
	}
	for _, name := range l.folder.Instances() {
		if _, known := seen[name]; known {
			continue
		}
		if one := l.readInstance(name, ""); one.Kept || one.Orphaned {
			seen[name] = one
		}
	}

	return seen
}

// readInstance reads an instance. Its lock is asked first: a keeper writes its last record before it lets go. A keeper
// that ends is dead before the kernel has taken its lock: the end of the start that is wanted, by its hash, counts
// meanwhile.
func (l *stateReader) readInstance(name, hash string) (s service.Seen) {
	s.Kept = l.folder.HasKeeper(name)
	r, found := l.folder.ReadRecord(name)
	s.Record = r

	switch {
	case s.Kept && found && !l.isKeeperAlive(r) && (!isOver(r.State) || r.Hash != hash):
		// Of one before it; it has not written yet.
		s.Record = service.Record{Last: r.Last}
	case s.Kept:
	case found && r.Boot != l.boot:
		s.Lease, s.Devices, s.Main, s.Keeper, s.Ready, s.Healthy = "", nil, service.Process{}, service.Process{}, false, nil
		if !isOver(r.State) {
			s.Why = "it ended with the machine, which was started anew since"
		}
	case !found || isOver(r.State):
		s.Orphaned = l.folder.IsAlive(name)
	default:
		s.Orphaned = l.folder.IsAlive(name) || len(newBelongings(l.host, l.folder, name).findProcesses(r)) > 0
	}

	return s
}

// isKeeperAlive reports whether the keeper that wrote a record lives. In another PID namespace that cannot be seen.
func (l *stateReader) isKeeperAlive(r service.Record) bool {
	return r.Boot == l.boot && (r.Namespace != l.host.Proc.PIDNamespace() || l.host.Proc.IsAlive(r.Keeper.PID, r.Keeper.Start))
}
