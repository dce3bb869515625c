// Package policy decides which devices a user may have, how many, how much of each and for how long, by the rules of
// configuration files:
//
//	limits := files.For(policy.User{UID: uid, Names: names, GIDs: gids})
//	if r := limits.Count(); r != nil {
//		fmt.Println(r, "permits", *r.GPUs)
//	}
//
// It must not open files or look up users; the caller passes both in.
//
// In each file the first rule that names the user counts, and all files count together: what one of them forbids, no
// other permits. So a user's own file cannot permit more than the machine's.
package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
)

// Place is a position in a file, from 1; Column counts bytes.
type Place struct {
	File         string
	Line, Column int
}

// String is the place for users: the file and the line.
func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Rule says what some users may have.
type Rule struct {
	At Place
	// The name for users; may be empty.
	Name string
	// Names, or ids in digits.
	Users []string
	// Likewise; with neither Users nor Groups the rule is for everyone but root.
	Groups []string
	// The devices in the forms of --device; nil: all.
	Devices []string
	// Patterns in the form of --model; nil: all.
	Models []string
	// Devices at the same time, over all leases of the user; nil: any number.
	GPUs *int
	// The most memory of a device; 0: all of it.
	Memory gpu.Bytes
	// The longest time of a lease; 0: without a limit.
	Time time.Duration
	// Jobs of gpuard submit that wait at the same time; nil: any number.
	Queue *int
	// What happens to a job's process on a device outside of its lease: OutsideEnd, or it is warned of.
	Outside string
	// The least level behind which a job may start; "": any, and none.
	Isolate job.Isolation
}

// OutsideEnd ends a process that is on a device outside of its lease.
const OutsideEnd = "end"

// String names the rule and its place: `rule "students" (/etc/gpuard/config.yaml:4)`.
func (r *Rule) String() string {
	if r.Name == "" {
		return "the rule at " + prose.Clean(r.At.String())
	}
	return prose.Clean(fmt.Sprintf("rule %q (%s)", r.Name, r.At))
}

// isForEverybody reports whether the rule names no users and no groups.
func (r *Rule) isForEverybody() bool { return len(r.Users)+len(r.Groups) == 0 }

// Login is what a login shell without a lease sees.
type Login string

// Values of Login, widest first.
const (
	LoginAll Login = "all" // every GPU
	// Those that the rules allow its user.
	LoginAllowed Login = "allowed"
	LoginNone    Login = "none" // none
)

// Default is the value of a flag that was not given.
type Default struct {
	// The flag as on the command line, without its dashes.
	Flag string
	// "" for a flag without a value.
	Value string
	At    Place
}

// String is the flag on the command line, with its place in the file.
func (d Default) String() string {
	flag := "--" + d.Flag
	if d.Value != "" {
		flag += " " + d.Value
	}
	return prose.Clean(flag + " is the default of " + d.At.String())
}

// Tolerance is how much use of a device without a lease still counts as free; nil: not set.
type Tolerance struct {
	Memory, Display *gpu.Bytes
	Utilization     *float64 // 0..1
}

// File is the content of one file.
type File struct {
	// The machine's file, which alone may permit more than gpuard's defaults.
	Machine  bool
	Path     string
	Rules    []Rule
	Tolerate Tolerance
	Defaults []Default
	Login    Login // "" not set
	Slurm    Slurm
	// The machine's alone.
	Watch Watch
}

// Slurm is what the names of a cluster mean.
type Slurm struct {
	// The gres type of each model, or of each profile of a MIG slice.
	Types map[string]string
	// The least memory of a GPU on the nodes that have the feature.
	Features map[string]gpu.Bytes
}

// Policy is the existing files: the machine's first, then the user's, then the project's.
type Policy []*File

// User is the caller as reported by the kernel; names are those of the IDs.
type User struct {
	UID    uint32
	Names  []string
	GIDs   []uint32
	Groups []string
}

// For returns the rules that bind a user: of each file the first that names the user.
func (p Policy) For(u User) (all Limits) {
	for _, f := range p {
		if i := slices.IndexFunc(f.Rules, func(r Rule) bool { return r.namesUser(u) }); i >= 0 {
			all = append(all, f.Rules[i])
		}
	}
	return all
}

// Names reports whether a rule of any file has names of users, and of groups, so that the caller's names must be looked
// up.
func (p Policy) Names() (users, groups bool) {
	word := func(text string) bool { _, err := strconv.ParseUint(text, 10, 32); return err != nil }
	for _, f := range p {
		for _, r := range f.Rules {
			users, groups = users || slices.ContainsFunc(r.Users, word), groups || slices.ContainsFunc(r.Groups, word)
		}
	}
	return users, groups
}

func (r *Rule) namesUser(u User) bool {
	if r.isForEverybody() {
		return u.UID != 0
	}
	is := func(word string, id uint32, names []string) bool {
		if n, err := strconv.ParseUint(word, 10, 32); err == nil {
			return uint32(n) == id
		}
		return slices.Contains(names, word)
	}
	return slices.ContainsFunc(r.Users, func(word string) bool { return is(word, u.UID, u.Names) }) ||
		slices.ContainsFunc(r.Groups, func(word string) bool {
			return slices.Contains(u.Groups, word) || slices.ContainsFunc(u.GIDs, func(id uint32) bool { return is(word, id, nil) })
		})
}

// Limits are rules that apply together.
type Limits []Rule

// Count is the rule with the fewest devices at the same time; nil when none limits them.
func (l Limits) Count() *Rule {
	return l.leastBy(func(r *Rule) (int64, bool) {
		if r.GPUs == nil {
			return 0, false
		}
		return int64(*r.GPUs), true
	})
}

// LeastMemory is the rule with the least memory of a device; nil when none limits it.
func (l Limits) LeastMemory() *Rule {
	return l.leastBy(func(r *Rule) (int64, bool) { return int64(r.Memory), r.Memory > 0 })
}

// ShortestTime is the rule with the shortest time; nil when none limits it.
func (l Limits) ShortestTime() *Rule {
	return l.leastBy(func(r *Rule) (int64, bool) { return int64(r.Time), r.Time > 0 })
}

// FewestWaiting is the rule with the fewest jobs that may wait; nil when none limits them.
func (l Limits) FewestWaiting() *Rule {
	return l.leastBy(func(r *Rule) (int64, bool) {
		if r.Queue == nil {
			return 0, false
		}
		return int64(*r.Queue), true
	})
}

// Outside is a rule by which a process on a device outside of its lease is ended; nil: it is warned of.
func (l Limits) Outside() *Rule {
	for i := range l {
		if l[i].Outside == OutsideEnd {
			return &l[i]
		}
	}
	return nil
}

// leastBy is the first of the rules with the smallest value.
func (l Limits) leastBy(of func(*Rule) (value int64, said bool)) (found *Rule) {
	var least int64
	for i := range l {
		if v, said := of(&l[i]); said && (found == nil || v < least) {
			found, least = &l[i], v
		}
	}
	return found
}

// ApplyTolerance applies the files to base: the machine's file may change it, all others may only lower it.
func (p Policy) ApplyTolerance(base Tolerance) Tolerance {
	for _, f := range p {
		base.Memory = overrideOrLower(base.Memory, f.Tolerate.Memory, f.Machine)
		base.Display = overrideOrLower(base.Display, f.Tolerate.Display, f.Machine)
		base.Utilization = overrideOrLower(base.Utilization, f.Tolerate.Utilization, f.Machine)
	}
	return base
}

// DisplayLimit says in words what decides Tolerance.Display; each is "" where there is nothing to say.
type DisplayLimit struct {
	// The key and its file.
	By string
	// Who raises it where.
	Raise string
	// Which higher value does not count, and why.
	Cut string
}

// DisplayLimit explains the value that Tolerance makes of base.
func (p Policy) DisplayLimit(base gpu.Bytes) (l DisplayLimit) {
	for _, f := range p {
		said := f.Tolerate.Display
		if said == nil {
			continue
		}
		key := "tolerate.display in " + prose.Clean(f.Path)
		switch {
		case f.Machine:
			base, l.By, l.Raise = *said, key, "have root raise "+key
		case *said < base:
			base, l.By, l.Raise = *said, key, "raise "+key
		case *said > base:
			l.Cut = cutText(*said, key)
		}
	}
	return l
}

// MemoryCut says which higher value of tolerate.memory does not count, and why; "" there is none.
func (p Policy) MemoryCut(base gpu.Bytes) (cut string) {
	for _, f := range p {
		switch said := f.Tolerate.Memory; {
		case said == nil:
		case f.Machine, *said < base:
			base = *said
		case *said > base:
			cut = cutText(*said, "tolerate.memory in "+prose.Clean(f.Path))
		}
	}
	return cut
}

func cutText(said gpu.Bytes, key string) string {
	return fmt.Sprintf("the %s of %s do not count, since only the machine's file may raise it", said, key)
}

func overrideOrLower[T gpu.Bytes | float64](base, said *T, counts bool) *T {
	if said == nil || base != nil && !counts && *base < *said {
		return base
	}
	return said
}

// NarrowestLogin is what a login shell without a lease sees: the narrowest value of all files.
func (p Policy) NarrowestLogin() Login {
	order := []Login{LoginAll, LoginAllowed, LoginNone}
	most := 0
	for _, f := range p {
		most = max(most, slices.Index(order, f.Login))
	}

	return order[most]
}

// MergeSlurm is what all files say of the cluster; where several name the same thing, the one nearest to the user
// counts.
func (p Policy) MergeSlurm() Slurm {
	all := Slurm{map[string]string{}, map[string]gpu.Bytes{}}
	for _, f := range p {
		maps.Copy(all.Types, f.Slurm.Types)
		maps.Copy(all.Features, f.Slurm.Features)
	}
	return all
}

// MergeDefaults are the values of flags that were not given, each once, from the file nearest to the user.
func (p Policy) MergeDefaults() (all []Default) {
	for _, f := range slices.Backward(p) {
		for _, d := range f.Defaults {
			if !slices.ContainsFunc(all, func(other Default) bool { return other.Flag == d.Flag }) {
				all = append(all, d)
			}
		}
	}
	return all
}
