// Package renewal says which buckets are to be looked at, and when. It is pure: time is an argument, in microseconds.
package renewal
