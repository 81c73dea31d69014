package sqliteledger

import (
	"fmt"
	"testing"
)

// MaxPages bounds the file, as a full disk does; never below the pages that it has.
func MaxPages(t testing.TB, s *Store, pages int) {
	t.Helper()
	s.writing.Lock()
	defer s.writing.Unlock()
	if _, err := s.writer.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
		t.Fatal(err)
	}
}
