package glance

import (
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
)

// Claim is what a free device or slice is for while others wait.
type Claim struct {
	// The place of the device in the devices of the report.
	Place int
	UUID  gpu.UUID
	// The text in English: "kept for pretrain of frank until about 15:37", "pretrain of frank gets it now", "a new job
	// of 1 GPU can take it".
	Text string

	// nil: a newcomer can have it.
	by  *status.Waiting
	now bool
}

// FreeClaims are those of all that is free; none where nothing waits for it. A newcomer can have what no request ahead of it keeps or gets
// now: one that waits for more than is free keeps nothing by waiting alone.
func FreeClaims(s *status.Report) (all []Claim) {
	var free []deviceOrSlice
	for _, p := range spotsOf(s) {
		if p.State() == string(status.Free) && p.Reason == "" {
			free = append(free, p)
		}
	}

	taken := map[gpu.UUID]Claim{}
	isWanted := false
	for i := range s.Waiting {
		w := &s.Waiting[i]
		if !IsInLine(w) || w.Most > 0 {
			continue
		}

		var can []gpu.UUID
		for _, p := range free {
			_, gone := taken[p.UUID]
			can = append(can, slices.DeleteFunc([]gpu.UUID{p.UUID}, func(id gpu.UUID) bool { return gone || !slices.Contains(w.Devices, id) })...)
		}

		isWanted = isWanted || len(can) > 0
		kept := slices.DeleteFunc(slices.Clone(can), func(id gpu.UUID) bool { return !slices.Contains(w.Kept, id) })
		if len(can) >= w.Count {
			// What is kept for it first.
			slices.SortStableFunc(can, func(a, b gpu.UUID) int { return slices.Index(kept, b) - slices.Index(kept, a) })
			for _, id := range can[:w.Count] {
				taken[id] = Claim{by: w, now: true}
			}
			continue
		}
		for _, id := range kept {
			taken[id] = Claim{by: w}
		}
	}

	if !isWanted {
		return nil
	}

	for _, p := range free {
		c := taken[p.UUID]
		c.Place, c.UUID = p.place, p.UUID
		c.Text = c.claimText(s, len(free)-len(taken))
		all = append(all, c)
	}

	return all
}

// claimText is the text of a claim, where so many are for newcomers.
func (c *Claim) claimText(s *status.Report, open int) string {
	switch {
	case c.by == nil:
		return fmt.Sprintf("a new job of %s can take it", upTo(open))
	case c.now:
		return fmt.Sprintf("%s of %s gets it now", c.by.Command, c.by.User)
	case c.by.KeptUntil == nil:
		return fmt.Sprintf("kept for %s of %s", c.by.Command, c.by.User)
	}
	return fmt.Sprintf("kept for %s of %s until about %s", c.by.Command, c.by.User, prose.NearTime(*c.by.KeptUntil, s.Now))
}

// upTo is how many devices a newcomer can have.
func upTo(n int) string {
	if n > 1 {
		return fmt.Sprintf("up to %d GPUs", n)
	}
	return prose.CountNoun(n, "GPU")
}

// roomOf is what the first line says of what is free while others wait; nil where that is nothing.
func roomOf(s *status.Report) *Part {
	claims := FreeClaims(s)
	if len(claims) == 0 {
		return nil
	}

	p := &Part{Key: Room}
	for i := range claims {
		if claims[i].by == nil {
			p.Count++
			p.Places = append(p.Places, claims[i].Place)
		}
	}

	first := claims[0].by
	switch {
	case p.Count > 0:
		p.Text = fmt.Sprintf("a new job of %s can start", upTo(p.Count))
	case slices.ContainsFunc(claims, func(c Claim) bool { return c.by != first }):
		p.Text = "kept for those who wait"
	default:
		p.Text = fmt.Sprintf("kept for %s of %s", first.Command, first.User)
	}

	return p
}
