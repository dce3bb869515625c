package setup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/core/edit"
	"gpuard/internal/host/sys"
)

// followMoves updates the record for files that their user has moved, such as ~/.bashrc into a folder with a symbolic
// link in its place. Such a file belongs to the user, even if gpuard made it.
func followMoves(r *edit.Record) {
	for i := range r.Entries {
		e := &r.Entries[i]
		info, err := os.Lstat(e.Path)
		if err != nil || e.Block == "" || info.Mode().Type() != os.ModeSymlink {
			continue
		}

		actual, err := sys.ResolvePath(e.Path)
		if err != nil {
			continue
		}

		e.Path, e.Made = actual, false
	}
}

// adoptMoved gives key what was set up for another folder that was renamed to this one or copied here, such as an
// environment of conda: there is just what gpuard wrote. Of a folder that is gone nothing is remembered then.
func adoptMoved(r *edit.Record, key string) {
	target, to, _ := strings.Cut(key, " ")
	if !filepath.IsAbs(to) {
		return
	}

	for _, old := range slices.Clone(r.Entries) {
		from, same := strings.CutPrefix(old.Setup, target+" ")
		rest, below := strings.CutPrefix(old.Path, from+"/")
		e := old
		e.Setup, e.Path = key, filepath.Join(to, rest)
		c := e.RemovalChange()
		now, err := readFound(&c, e.Sums)
		if !same || !below || err != nil || c.Path != e.Path || slices.ContainsFunc(r.Entries, func(o edit.Entry) bool { return o.Path == e.Path && o.Block == e.Block }) {
			continue
		}
		if step, err := edit.PlanRemoval(c, now, e.Made); err != nil || !step.HasEffect() {
			continue
		}

		if _, err := os.Lstat(old.Path); errors.Is(err, os.ErrNotExist) {
			r.DropEntry(old.Path, old.Block)
		}

		r.Entries = append(r.Entries, e)

		for _, dir := range slices.Clone(r.Folders) {
			if rest, below := strings.CutPrefix(dir, from+"/"); below && !slices.Contains(r.Folders, filepath.Join(to, rest)) {
				r.Folders = append(r.Folders, filepath.Join(to, rest))
			}
		}
	}
}
