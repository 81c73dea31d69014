package lease

// Sweep removes records of holders that are long gone, looking at a few. It
// changes no answer: a record that old is ignored.
func (s *State) Sweep(now int64) {
	seen := 0
	for holder, rec := range s.Holders {
		if rec.gone(s.Last) {
			delete(s.Holders, holder)
		}
		if seen++; seen == 2 {
			return
		}
	}
}

// Idle reports whether the bucket can be forgotten at now without a loss: by then
// it is full, its window is over, and every record is out of date. Full is set
// with each grant.
func (s *State) Idle(now int64) bool {
	return now >= s.Full && now+s.Offset >= s.Last
}
