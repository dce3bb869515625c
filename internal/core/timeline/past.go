package timeline

import (
	"slices"

	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// PastMarks are the marks of a band whose trouble is over, each trouble once, at its last begin; the latest first.
func (b *Band) PastMarks(d *status.Device) (all []trend.Mark) {
	for i := range b.Marks {
		m := &b.Marks[i]
		if m.Lasts(d) {
			continue
		}

		all = slices.DeleteFunc(all, func(o trend.Mark) bool { return o.What == m.What && o.Text == m.Text && !o.At.After(m.At) })
		if !slices.ContainsFunc(all, func(o trend.Mark) bool { return o.What == m.What && o.Text == m.Text }) {
			all = append(all, *m)
		}
	}

	slices.SortStableFunc(all, func(a, b trend.Mark) int { return b.At.Compare(a.At) })

	return all
}
