package lease

// Sweep removes records of holders that are long gone, looking at a few. It
// changes no answer: a record that old is ignored.
func (s *State) Sweep(now int64) {
	seen := 0
	for holder, rec := range s.Holders {
		if s.Gone(rec) {
			delete(s.Holders, holder)
		}
		if seen++; seen == 2 {
			return
		}
	}
}

// Gone reports whether a record of the bucket may be dropped: its holder is long gone.
func (s *State) Gone(r *Record) bool { return r.gone(s.Last) }

// Idle reports whether the bucket can be forgotten at now without a loss: by then
// it is full, its window is over, and every record is out of date. Full is set
// with each grant.
func (s *State) Idle(now int64) bool {
	return now >= s.Full && now+s.Offset >= s.Last
}
