// Package reqcache remembers what requests came to, by all that they say: the same attributes lead to the same buckets until
// something changes. It keeps pointers to what decides, and never state of its own, so it may forget anything at any time;
// what is not in it is found the long way.
//
// Readers take no lock and compare the attributes themselves: a hash only says where to look. Writers that meet another give
// up instead of waiting, and a table that is full is replaced by a goroutine of its own. So no request waits for the cache.
// Start with cache.go.
package reqcache
