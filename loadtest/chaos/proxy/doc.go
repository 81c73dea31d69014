// Package proxy stands between the processes of a chaos run and does to their
// messages what networks do.
//
//   - Link (link.go) passes TCP on between one pair of them: cut, cut one way, broken,
//     delayed, or pointed elsewhere.
//   - Relay (relay.go) stands for a server towards agents and knows the calls of the
//     lease service: it repeats them, lets them overtake one another, loses answers.
//   - Gaps (gaps.go) reads what a server says to Postgres and acts at a given point of a
//     transaction: that is how a server dies between two of its own steps without any
//     of its code knowing.
package proxy
