package health

import (
	"cmp"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
)

// sameErrorWithin is how far apart two sources may date the same error.
const sameErrorWithin = time.Second

// MergeXIDs merges the errors of one device from several sources into one list: oldest first, each once, without those
// that are over because they are not later than over. An error without a time sorts first, and is over when undated
// says so.
func MergeXIDs(xids []gpu.XID, over time.Time, undated bool) []gpu.XID {
	xids = slices.Clone(xids)
	slices.SortStableFunc(xids, func(a, b gpu.XID) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Source, b.Source), cmp.Compare(a.PID, b.PID))
	})

	var out []gpu.XID
	for _, x := range xids {
		if x.At.IsZero() && undated || !x.At.IsZero() && !x.At.After(over) {
			continue
		}
		i := slices.IndexFunc(out, func(o gpu.XID) bool { return o.Code == x.Code && x.At.Sub(o.At) <= sameErrorWithin })
		if i < 0 {
			out = append(out, x)
		} else if out[i].PID == 0 {
			out[i].PID = x.PID
		}
	}

	return out
}

// hasXID reports whether the list has the error already: two readings of a log may date it slightly differently.
func hasXID(list []gpu.XID, x gpu.XID) bool {
	return slices.ContainsFunc(list, func(o gpu.XID) bool { return o.Code == x.Code && x.At.Sub(o.At).Abs() <= sameErrorWithin })
}
