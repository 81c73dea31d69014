// Package testenv gives tests the real engines: a Redis Cluster of three masters and three replicas, and a Postgres.
// Each is started once per test binary, when the first test asks, and shared. A test gets a key prefix or a database of
// its own. Tests of faults start private ones, which they may kill.
//
// An engine comes from the first of these. QUOTA_TEST_REDIS or QUOTA_TEST_POSTGRES names one. Docker runs it, where its
// engine answers and the image is there or can be pulled. The programs of this machine run it.
// QUOTA_TEST_ENGINES=docker or =local decides between the last two. The choice is printed once. A missing engine fails
// the test where CI or QUOTA_TEST_REQUIRE is set, and skips it elsewhere.
//
// A package whose tests use it ends them with Main, or hands Wrap to goleak. Without either, the engines end shortly
// after the test binary. Read testenv.go first.
package testenv
