// Package budgets holds budgets to what streams of language models use. Many gateways share one tenant's tokens a
// minute and its month. What an answer costs is heavy-tailed and known only as it streams. Callers leave, and gateways
// are killed. What was streamed is counted outside the SDK, and the ledger has it to the token. No budget is overspent by
// more than an extension of each stream under way, and hardly any of it is left.
package budgets
