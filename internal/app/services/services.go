// Package services runs the programs of a gpuard.yaml: what is wanted is written into the project's folder, one supervisor
// per project brings it about, and one keeper beside each instance looks after it. Nobody talks to anybody: there are files,
// locks and notices of the kernel, so that whoever is killed is found missing and replaced, and nothing runs twice.
package services

import (
	"context"
	"errors"

	"gpuard/internal/app"
	"gpuard/internal/core/job"
	"gpuard/internal/core/service"
)

// Projects are the projects of this user on this machine.
type Projects struct{ App *app.App }

// Load reads a project's file; "" looks for gpuard.yaml here and above. The error is an *app.Usage with every mistake, one a
// line, each with its place.
func Load(path string) (*service.Project, error) { return nil, errUnfinished }

// Open is the folder of a project whose file was read. It is made when it is missing.
func (s *Projects) Open(p *service.Project) (*Folder, error) { return nil, errUnfinished }

// Find is the folder of a project by its file, which may be unreadable or gone; "" looks here and above. The error is an
// *app.Usage when there is neither file nor folder. A project that was never up has no instances, and Look says so.
func (s *Projects) Find(path string) (*Folder, error) { return nil, errUnfinished }

// Folder is one project: what is wanted of it, and what is known of its instances.
type Folder struct{}

// Change is what an up has changed; names of instances in the order of the file.
type Change struct {
	Start []string // begin, or begin anew: new, changed, or ended before
	Stay  []string // go on as they are
	End   []string // are not in the file any more
}

// Up writes down that p is wanted, of it only the services named and what they depend on where any are named, and sees to
// a supervisor. It returns at once: Look and Changes tell what comes of it.
func (f *Folder) Up(ctx context.Context, p *service.Project, only []string) (*Change, error) {
	return nil, errUnfinished
}

// Down writes down that services are not wanted any more, all without names, and sees to a supervisor. now does not leave
// them the time that they have for their end.
func (f *Folder) Down(ctx context.Context, only []string, now bool) error { return errUnfinished }

// Restart begins services anew that are wanted, all without names, and sees to a supervisor.
func (f *Folder) Restart(ctx context.Context, only []string) error { return errUnfinished }

// Mend starts a supervisor where there is something to do for one and none lives. Whoever waits for something calls it after
// each look.
func (f *Folder) Mend(ctx context.Context) error { return errUnfinished }

// View is a project as it is now.
type View struct {
	Name       string // of the project
	File       string
	Machine    string // --machine of the last up
	Dir        string // the folder
	Supervised bool   // a supervisor lives
	Rows       []Row  // those wanted in their order, then what still ends
}

// Row is one instance.
type Row struct {
	service.Instance // as it is wanted; only Name where it is not wanted any more
	service.Seen     // as it is; State and Why also say what it waits for when nothing of it was started yet
	Wanted           bool
	Fresh            bool   // what is seen is of the instance as it is wanted, not of one before it
	Log              string // file that its output goes to; the one before it is FILE.1
}

// Settled reports whether nothing will happen to it without somebody's doing: it is ready, or ended for good, or waits for
// what cannot come.
func (r *Row) Settled() bool { return false }

// Look reads it all.
func (f *Folder) Look(ctx context.Context) (*View, error) { return nil, errUnfinished }

// Changes has a value after something changed that Look may show; it is closed when ctx ends.
func (f *Folder) Changes(ctx context.Context) <-chan struct{} { return nil }

// Supervise is the life of a project's supervisor. It ends when there is nothing to do, or another one lives.
func Supervise(ctx context.Context, a *app.App, dir string) error { return errUnfinished }

// Keep is the life of the keeper of an instance, which runs the command of spec.
func Keep(ctx context.Context, a *app.App, dir, instance string, spec job.Spec, care job.Care) error {
	return errUnfinished
}

var errUnfinished = errors.New("cannot do that yet")
