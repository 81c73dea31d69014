// Package journal keeps on disk what a crash of an agent must not take: counters in memory-mapped pages, and a
// log of records. It does not know what is counted or recorded; internal/core/usage does.
//
// A directory belongs to one process at a time, which holds its lock. Each start of the process is a life: a
// log, <epoch>.log, and pages, <epoch>.cells.N. A life that is not drained is settled by the next start, or by
// quota-agent recover.
//
// What is lost when: a kill of the process loses nothing, for both files are the kernel's. A loss of power
// loses at most what came since the last Sync; Run syncs every interval. A full disk is found where the files
// grow, before anything is written. Pages are backed by blocks when they are mapped, so no store to them can
// fail. A log that could not be written is void. Its life is never settled from it, for it may be behind what
// was settled since.
//
// Read life.go first, then log.go and pages.go.
package journal
