package redisstore

// Looked is another value after each look.
func (s *Store) Looked() any { return s.memory.Load() }

// The scripts' hashes.
var (
	ReadHash  = readScript.Hash()
	WriteHash = writeScript.Hash()
)
