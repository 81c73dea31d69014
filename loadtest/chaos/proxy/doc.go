// Package proxy stands between the processes of a chaos run and does to their messages what networks do.
//
//   - Link (link.go) passes TCP on between one pair of them. It can cut it, cut it one way, break it, delay it, or
//     point it elsewhere.
//   - Relay (relay.go) stands for a server towards agents and knows the calls of the lease service. It repeats calls,
//     lets them overtake one another, and loses answers.
//   - Gaps (gaps.go) reads what a server says to Postgres and acts at a given point of a transaction. So a server dies
//     between two of its own steps without its code knowing.
package proxy
