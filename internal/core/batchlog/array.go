package batchlog

// Array is what a run that was submitted together with others has in common with them.
type Array struct {
	First int `json:"first"` // the first of them
	// So many at the same time.
	Most int `json:"most"`
}

// arrayGroup is the runs of an array.
type arrayGroup struct {
	most int
	// Begun and not ended.
	live int
	// The tasks that are about to be begun (Take).
	taken int
	// Could have been taken and was not.
	parked []int
}

func (s *State) joinArray(run int, a *Array) {
	if a == nil || a.Most < 1 {
		return
	}
	if s.array == nil {
		s.array = map[int]*arrayGroup{}
	}
	if s.array[a.First] == nil {
		s.array[a.First] = &arrayGroup{most: a.Most}
	}
	s.Runs[run].array = s.array[a.First]
}

// updateArray counts a run whose phase has changed. When one of an array ends, another may start.
func (s *State) updateArray(r *Run, before Phase) {
	if r.array == nil {
		return
	}
	was, is := before == Begun || before == Running, r.Phase == Begun || r.Phase == Running
	switch {
	case is && !was:
		r.array.live++
	case was && !is:
		r.array.live--
		s.offerParked(r.array)
	}
}

// ArrayRunning is how many runs of its array run, and whether that is as many as may.
func (s *State) ArrayRunning(run int) (running int, full bool) {
	g := s.Runs[run].array
	if g == nil {
		return 0, false
	}
	return g.live + g.taken, g.live+g.taken >= g.most
}

// TakeArrayPlace reserves a place among those of its array for a run that is about to start; false where all are taken:
// Fresh lists the run again when one is free. Untake is to be called when the run has begun, or is not to.
func (s *State) TakeArrayPlace(run int) bool {
	g := s.Runs[run].array
	switch {
	case g == nil:
		return true
	case g.live+g.taken >= g.most:
		g.parked = append(g.parked, run)
		return false
	}
	g.taken++

	return true
}

// ReturnArrayPlace gives the place of Take back.
func (s *State) ReturnArrayPlace(run int) {
	if g := s.Runs[run].array; g != nil {
		g.taken--
		s.offerParked(g)
	}
}

// offerParked offers as many of those that found no place as there are now.
func (s *State) offerParked(g *arrayGroup) {
	for free := g.most - g.live - g.taken; free > 0 && len(g.parked) > 0; {
		run := g.parked[0]
		g.parked = g.parked[1:]
		if s.MayStart(run) {
			s.fresh = append(s.fresh, run)
			free--
		}
	}
}
