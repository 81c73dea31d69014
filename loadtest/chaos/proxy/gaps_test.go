package proxy

import (
	"encoding/binary"
	"testing"
)

// message is one of PostgreSQL's, with zero bytes where the fields want them.
func message(kind byte, body string) []byte {
	b := []byte{kind}
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(body)))
	return append(b, body...)
}

// conversation is a transaction of a server, message by message; true is from the server.
type step struct {
	from  bool
	bytes []byte
}

var (
	startup = step{true, append(binary.BigEndian.AppendUint32(nil, 12), "\x00\x03\x00\x00user"...)}
	intake  = []step{
		startup,
		{true, message('Q', "begin\x00")},
		{false, message('C', "BEGIN\x00")},
		{false, message('Z', "T")},
		{true, message('P', "s1\x00SELECT agent FROM frontier WHERE x FOR UPDATE\x00\x00\x00")},
		{true, message('B', "\x00s1\x00")},
		{true, message('P', "s2\x00INSERT INTO reports VALUES\x00\x00\x00")},
		{true, message('B', "\x00s2\x00")},
		{false, message('C', "INSERT 0 1\x00")},
		{true, message('Q', "commit\x00")},
		{false, message('C', "COMMIT\x00")},
		{false, message('Z', "I")},
	}
	fold = []step{
		startup,
		{true, message('Q', "begin\x00")},
		{true, message('P', "\x00INSERT INTO blocks VALUES\x00\x00\x00")},
		{true, message('B', "\x00\x00")},
		{true, message('Q', "commit\x00")},
		{false, message('C', "COMMIT\x00")},
		{false, message('Z', "I")},
	}
)

// A gap is met at the message that it names, however the stream is cut into pieces,
// and that message does not go on.
func TestGapsAreMetAtTheirMessage(t *testing.T) {
	for _, test := range []struct {
		gap   Gap
		steps []step
		at    int // the message that is held back; -1 for none
	}{
		{BeforeWrite, intake, 5},
		{BeforeCommit, intake, 9},
		{AfterCommit, intake, 10},
		{InFold, intake, -1},
		{InFold, fold, 4},
		{AfterCommit, fold, -1},
		{BeforeCommit, fold, -1},
		{BeforeWrite, fold, -1},
	} {
		for _, size := range []int{1, 3, 1 << 20} {
			var g Gaps
			fired := 0
			g.Arm(test.gap, func() { fired++ })
			tap := g.Tap()
			met := -1
			for i, s := range test.steps {
				way, passed, stopped := Back, 0, false
				if s.from {
					way = Forth
				}
				for rest := s.bytes; len(rest) > 0 && !stopped; {
					n := min(size, len(rest))
					var on []byte
					on, stopped = tap.Pass(way, rest[:n])
					passed += len(on)
					rest = rest[n:]
				}
				if stopped {
					met = i
					if passed != 0 {
						t.Errorf("%s, pieces of %d: %d bytes of the held message passed", test.gap, size, passed)
					}
					break
				}
				if passed != len(s.bytes) {
					t.Errorf("%s, pieces of %d: message %d: %d of %d bytes passed", test.gap, size, i, passed, len(s.bytes))
				}
			}
			if met != test.at || (fired == 1) != (test.at >= 0) {
				t.Errorf("%s, pieces of %d: met at message %d and fired %d times, want at %d", test.gap, size, met, fired, test.at)
			}
			if g.Disarm() != (test.at < 0) {
				t.Errorf("%s, pieces of %d: armed still or no more, against what it did", test.gap, size)
			}
		}
	}
}
