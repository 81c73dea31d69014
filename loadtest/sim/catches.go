package sim

// catches says, for each scenario, which fault it would catch that no other scenario would. A scenario without such a
// line is not worth its run.
var catches = map[string]string{
	"1 agent, 3 ×":       "A lone agent is not granted all there is.",
	"10 agents, 0.9 ×":   "Requests are denied below the limit.",
	"10 agents, 3 ×":     "Agents together admit more, or less, than the rate.",
	"100 agents, 0.9 ×":  "Idle tokens on many agents starve others below the limit.",
	"100 agents, 1.1 ×":  "Just above the limit, tokens lie where they are not asked for.",
	"100 agents, 3 ×":    "Overload makes agents renew more often than they learn from.",
	"100 agents, 10 ×":   "Heavy overload costs renewals, or lets bursts through.",
	"1000 agents, 1.1 ×": "Shares of a few tokens are rounded away.",

	"20 agents of 40,000/s, 0.5 ×": "Busy buckets below the limit renew before they must.",

	"zipf over 100 agents, 1.1 ×":                                           "A share does not follow demand that differs a hundredfold.",
	"moves to another tenth of the agents every 2 s, 3 ×":                   "Shares stay with agents that traffic has left.",
	"on for 3 s, off for 3 s, 3 ×":                                          "What refills in a pause is lost, or granted twice.",
	"20 agents, half have long leases, the others begin after 100 s, 0.7 ×": "Long leases are not called back for newcomers.",
	"a burst of 2 s after 13 s of silence, 10 ×":                            "The burst is not whole after a silence.",
	"equal demand: shares, 3 ×":                                             "Equal agents get unequal shares.",
	"one agent with ten times the others' demand, 3 ×":                      "Shares are not in proportion to demand.",
	"20 agents, 500 keys, sparse, 0.02 ×":                                   "A cold key takes more than one round trip.",

	"moves to another of 10 agents every 2 s, a burst of 100, 0.9 ×":  "What the last agent draws is missed where the burst bridges nothing, below the limit.",
	"moves to another of 10 agents every 2 s, a burst of 100, 3 ×":    "The same beyond the limit.",
	"moves to another of 10 agents every 2 s, a burst of 1000, 0.9 ×": "A burst of a second does not bridge the time in which shares follow.",
	"moves to another of 10 agents every 2 s, a burst of 1000, 3 ×":   "The same beyond the limit.",

	"500 keys of 100/s, 0.2/s on each of 10 agents":              "Requests far below the limit wait for tokens one by one.",
	"100 keys of 1,000 an hour, 10 an hour on each of 10 agents": "A slow limit's leases end between two requests.",
	"200 keys of 100,000/s, 100/s on one agent":                  "A newcomer gets so few tokens that it waits twice.",

	"strict, 10 agents, a burst of 100, 0.9 ×": "A strict limit with a small burst denies below the limit.",
	"strict, 10 agents, a burst of 100, 1.1 ×": "The same just beyond the limit.",

	"5 a minute over 10 agents, 3 ×":                                   "Fewer tokens than agents: a token is lost or spent twice.",
	"60 a minute over 10 agents, 1.5 ×":                                "A token a second is held by an agent that does not need it.",
	"100 an hour over 100 agents, 10 ×":                                "Remainders of slow refills are lost over hours.",
	"1,000/s over 100 agents, 3 ×":                                     "Ten tokens a second on each agent are rounded to none.",
	"plenty, 300/s over 100 sparse agents, a burst of a minute, 0.3 ×": "With plenty left, sparse agents still renew for each request.",
	"43/s over 100 agents, a burst of 10 s, 1.5 ×":                     "Less than a token a second on each agent: shares of the burst lie idle.",
	"30/s over 100 agents, a burst of two minutes, 1.5 ×":              "Long terms of a full bucket outlive the plenty.",
	"500/s over 100 agents, a burst of two minutes, 1.5 ×":             "The end of a large burst overshoots.",

	"10,000 in 10 s over 20 agents, 3 ×":                      "A window's units are granted twice, or carried over its edge.",
	"1,000 in 1 s over 20 agents, 3 ×":                        "Leases outlive windows of one term.",
	"a month's 200,000 used up over 100 agents":               "The last units of a quota are lost among agents.",
	"the same, one agent lost":                                "Units of a lost agent are not missed once, or come back twice.",
	"1,000 keys over 100 agents, across an edge, 0.5 ×":       "All buckets ask at a window's edge at once, and requests wait.",
	"1,000 keys over 100 agents, sparse, across edges, 0.5 ×": "Sparse buckets are denied after an edge.",

	"sliding, 10,000 in 10 s over 20 agents, 3 ×":         "The window before is weighed wrongly.",
	"sliding, 50 keys of 100 in 10 s over 10 agents, 3 ×": "Small sliding windows depend on where in the window they begin.",
	"log, 5 a minute over 10 agents, 3 ×":                 "Any minute has more than five.",

	"leaky, 1,000/s over 10 agents, 3 ×":        "Paced requests come in bunches, or the queue is not full.",
	"50 slots over 10 agents, 0.9 ×":            "Slots that were given back are not free elsewhere.",
	"50 slots over 10 agents, 2 ×":              "More are in flight than there are slots.",
	"50 slots over 10 agents, with queues, 2 ×": "Who waits is passed by a slot that came free.",
	"2,500 slots over 10 agents, 0.9 ×":         "Many slots cost a renewal for each request.",

	"strict, 100 agents, 3 ×":                               "Strict limits overshoot in a tenth of a second.",
	"strict, moves every 2 s, 3 ×":                          "Strict limits starve as demand moves.",
	"requests of 500 of 1,000, 3 ×":                         "Large requests are never served, or overdraw.",
	"single ones, and 1 of 100 of up to 900, of 1,000, 3 ×": "Small requests starve the large ones.",

	"one of 100 leaves and one joins each second, 3 ×":  "What a leaving agent gives back is lost.",
	"one of 100 crashes and one joins each second, 3 ×": "What a crashed agent had is granted again too early.",
	"ten of 100 stand still for 3 s of each 10 s, 3 ×":  "An agent that stood still spends a lease that has ended.",
	"agents' clocks off by up to 10 s, 3 ×":             "Terms are read from agents' clocks.",

	"5 % lost, 5 % twice, 3 ×":                                        "A lost answer, or a repeated request, is counted twice.",
	"round trips of 1000 ms, 3 ×":                                     "Renewals begin too late for a far server.",
	"a strained server, 16 times, 1.1 ×":                              "An overloaded server is asked more, and not less.",
	"a strained server, 100/s, a burst of two minutes, 16 times, 3 ×": "Leases of minutes of a scarce bucket miss the rate over the whole run.",
	"renewals are dear, 400/s, a burst of 1 s, 4 times, 1.1 ×":        "Longer leases of a small burst miss the rate.",

	"server away for 30 s, 0.9 ×":                                              "Requests below the limit are denied in an outage.",
	"server away for 30 s, 3 ×":                                                "Agents admit more than their shares in an outage.",
	"server silent for 30 s, 3 ×":                                              "Calls that are never answered hold renewals back.",
	"server away for 10 min, 0.9 ×":                                            "Shares run dry in a long outage.",
	"half of the agents cut off for 30 s, 3 ×":                                 "Those cut off admit more than the bound says.",
	"half of the agents cut off for 30 s, shares held for a minute, 3 ×":       "Held shares are given to others.",
	"10,000 in 10 s, server away for 30 s, 3 ×":                                "Windows that begin in an outage have no share, or a whole one.",
	"server away for 2 s, 100 sparse keys over 10 agents, 0.1 ×":               "Buckets without a lease are denied in an outage.",
	"server silent for 20 s, 100 sparse keys over 10 agents, 0.1 ×":            "Requests wait in vain until a silent server is found lost.",
	"server away for 10 s, 20 keys of 100/s over 10 agents, 0.8 ×":             "Trickles that just carry the demand run dry in an outage.",
	"server silent for 20 s, 20 keys of 100/s over 10 agents, 0.8 ×":           "Calls that timed out count as strain once the server is back.",
	"server killed for 2 s, it forgets 20 keys of 100/s over 10 agents, 0.8 ×": "Agents pay a forgotten bucket for what an outage refilled.",
	"server killed for 2 s, it forgets 20 keys of 100/s over 10 agents, 3 ×":   "Fallbacks that a forgotten bucket takes over are granted twice.",
	"the store forgets 100 sparse keys over 10 agents, 0.1 ×":                  "Buckets that no lease proves are suspect long after all are declared.",
	"the store forgets 20 keys of 100/s over 10 agents, 0.8 ×":                 "A forgotten bucket is suspect until leases would have ended.",

	"the store forgets everything, 3 ×":                                                   "A store that forgot grants everything anew, and stays wrong.",
	"one of three shards forgets, 9 keys, 3 ×":                                            "One shard's loss disturbs the others' buckets.",
	"20 agents, half have long leases, the store forgets once as the others begin, 0.7 ×": "Leases that the store has forgotten live on beside new ones.",
	"a promoted store is 10 min ahead, 3 ×":                                               "A clock that leaps ahead refills ten minutes' tokens.",
	"a promoted store is 10 min behind, 3 ×":                                              "A clock that leaps back stops the refill.",
	"after 3 s without one, a promoted store is 10 min ahead, 3 ×":                        "A failover ends all leases and refills at once.",
	"the store's clock leaps 30 s ahead and back every second, 3 ×":                       "The same seconds refill again and again.",
}
