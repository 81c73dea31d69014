// Package reqcache remembers the limits and buckets that requests were resolved to, by all their attributes. The same
// attributes lead to the same buckets until something changes. It keeps pointers only, and never state of its own. So
// it may forget anything at any time: a request that is not in it is resolved the long way.
//
// Readers take no lock and compare the attributes themselves: a hash only says where to look. Writers that meet another give
// up instead of waiting, and a table that is full is replaced by a goroutine of its own. So no request waits for the cache.
// Start with cache.go.
package reqcache
