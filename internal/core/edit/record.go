package edit

import (
	"slices"
)

// Record is what gpuard wrote, so that it recognizes its own text, and removes only what it made.
type Record struct {
	Schema  string  `json:"schema"` // "gpuard.record/1"
	Entries []Entry `json:"entries"`
	// Created on the way; removed when empty.
	Folders []string `json:"folders"`
}

// Entry is one file, or one block in a file.
type Entry struct {
	// Its setup, such as "conda /home/ann/envs/train".
	Setup   string `json:"setup"`
	Path    string `json:"path"`
	Block   string `json:"block,omitempty"`
	Comment string `json:"comment,omitempty"`
	// The sums of a whole file: what was written, and during a change also what is about to be.
	Sums []string `json:"sums,omitempty"`
	// The file of the block was created for it.
	Made bool `json:"made,omitempty"`
}

// EntriesOf lists the entries of one setup.
func (r *Record) EntriesOf(setup string) []Entry {
	var mine []Entry
	for _, e := range r.Entries {
		if e.Setup == setup {
			mine = append(mine, e)
		}
	}
	return mine
}

// KnownSums is the record of the file that c changes, nil for none.
func (r *Record) KnownSums(c Change) []string {
	for _, e := range r.Entries {
		if e.Path == c.Path && e.Block == c.Block {
			return append([]string{}, e.Sums...)
		}
	}
	return nil
}

// RecordIntent records a step before it is done for a setup. The record stays valid if the step is never done.
func (r *Record) RecordIntent(setup string, s Step) {
	i := slices.IndexFunc(r.Entries, func(e Entry) bool { return e.Path == s.Path && e.Block == s.Block })
	if i < 0 {
		r.Entries = append(r.Entries, Entry{Path: s.Path, Block: s.Block, Comment: s.Comment, Made: s.Action == Create})
		i = len(r.Entries) - 1
	}

	e := &r.Entries[i]
	e.Setup = setup
	if sum := TextSum(s.After); s.Block == "" && !slices.Contains(e.Sums, sum) {
		e.Sums = append(e.Sums, sum)
	}
}

// RecordDone records that a step was done, and drops the sums of older texts.
func (r *Record) RecordDone(s Step) {
	for i := range r.Entries {
		if e := &r.Entries[i]; e.Path == s.Path && e.Block == s.Block && s.Block == "" {
			e.Sums = []string{TextSum(s.After)}
		}
	}
}

// DropEntry drops an entry.
func (r *Record) DropEntry(path, block string) {
	r.Entries = slices.DeleteFunc(r.Entries, func(e Entry) bool { return e.Path == path && e.Block == block })
}

// RemovalChange is the change that removes the entry.
func (e Entry) RemovalChange() Change {
	return Change{Path: e.Path, Block: e.Block, Comment: e.Comment}
}

// Permissions of a whole file of gpuard's.
func (c Change) Permissions() uint32 {
	if c.Mode == 0 {
		return 0o644
	}
	return c.Mode
}
