// Package testenv gives tests the real engines: a Redis Cluster of three masters
// and three replicas, and a Postgres. Each is started once per test binary, when
// the first test asks, and shared; a test gets a key prefix or a database of its
// own. Tests of faults start private ones, which they may kill.
//
// Where an engine comes from, in this order: the one that QUOTA_TEST_REDIS or
// QUOTA_TEST_POSTGRES names; Docker, where its engine answers and the image is there
// or can be pulled; the programs of this machine. QUOTA_TEST_ENGINES=docker or
// =local decides between the last two. Which it was is printed once. A missing
// engine fails the test where CI or QUOTA_TEST_REQUIRE is set, and skips it elsewhere.
//
// A package whose tests use it ends them with Main, or hands Wrap to goleak. Without
// either, the engines end shortly after the test binary. Read testenv.go first.
package testenv
