package size

// The costs in seconds of a processor and in bytes, and other values that the formulas do not derive. constants has a
// line for each: its meaning and its source.
const (
	decisionCPU  = 110e-9
	agentCPU     = 15e-6
	reportCPU    = 1.07e-6
	stepCPU      = 25e-6
	replicaCPU   = 8e-6
	serverCPU    = 16e-6
	callCPU      = 150e-6
	rowServerCPU = 0.9e-6
	rowCPU       = 0.55e-6
	againCPU     = 0.2e-6
	againServer  = 0.2e-6
	entryCPU     = 18e-6
	foldCPU      = 6e-6
	clientBytes  = 3.3e6
	tenantBytes  = 955.0
	bucketBytes  = 142.0
	holderBytes  = 450.0
	stateBytes   = 1200.0
	rowBytes     = 7.3
	entryBytes   = 158.0
	usedBytes    = 40.0
	rollupBytes  = 420.0
	keyBytes     = 156.0
	touchBytes   = 120.0
	idle         = 120.0
	tally        = 10.0
	firstMinute  = 6.5
	calmDemand   = 0.5
	nearDemand   = 1.1
	seldomDemand = 5.0
	askDemand    = 10.0
	oftenDemand  = 20.0
	crowd        = 5.0
	lead         = 40.0
	leastTrip    = 0.001
	mostTrip     = 0.1
	waiting      = 0.02
	foldable     = 0.7
	heavy        = 1 << 40
)

// The sources of constants.
const (
	isMeasured  = "measured"
	isSimulated = "simulated"
	isEstimated = "**estimated**"
	isCode      = "the code's"
	isChosen    = "chosen"
)

// constant is a line of the docs' table.
type constant struct {
	name   string
	value  float64
	unit   string  // empty for a number
	scale  float64 // of the unit
	what   string
	origin string
	from   string
}

const (
	micro = 1e-6
	mib   = 1 << 20
	gib   = 1 << 30
	tib   = 1 << 40
)

var constants = []constant{
	{"decisionCPU", decisionCPU, "µs", micro, "decision by attributes, of one limit", isMeasured,
		"median of those sampled in a load of 1,000,000/s over ten gateways, load average 13; `make bench-decision` has 0.04 to 0.2"},
	{"agentCPU", agentCPU, "µs", micro, "renewal, gateway", isEstimated, "what was left of the gateways' time in that load"},
	{"reportCPU", reportCPU, "µs", micro, "live bucket and report, gateway", isMeasured, "[performance.md](../../docs/performance.md#a-report)"},
	{"stepCPU", stepCPU, "µs", micro, "renewal, Redis's masters", isMeasured,
		"six runs of the headline on one machine took 29 to 35 µs of all six nodes ([performance.md](../../docs/performance.md#load-on-real-engines)), beside all else, with a million records in no cache. `make bench-renewal` has 10 to 15 alone"},
	{"replicaCPU", replicaCPU, "µs", micro, "its replicas' part", isEstimated, "of that, as masters and replicas took of a like load: three to one"},
	{"serverCPU", serverCPU, "µs", micro, "renewal, quota-server", isMeasured,
		"what is left of the server's processors in these six runs (33 to 40 µs a renewal with all that there is) once calls and rows are taken off. In batches of 1,000, the store in process, 8 (`make bench-renewal`)"},
	{"callCPU", callCPU, "µs", micro, "call, quota-server", isEstimated, "270 measured with 2.5 renewals in each at a load average of 13; 100 over loopback with one renewal, client and server together, leases in memory (`go test -run xxx -bench Renew$ ./internal/server/boot`). With it the headline's processors come out (`TestProcessorsOfTheLoad`)"},
	{"rowServerCPU", rowServerCPU, "µs", micro, "report row, quota-server", isMeasured, "`make bench-ledger`, senders included"},
	{"rowCPU", rowCPU, "µs", micro, "report row, Postgres", isMeasured, "`make bench-ledger ARGS=\"-only size\"`: 0.33 to 0.41 µs to settle, with 10 and 100 agents, and 0.1 to 0.25 to read for the fold ([performance.md](../../docs/performance.md#the-ledger))"},
	{"againCPU", againCPU, "µs", micro, "report row that is not folded yet, each time that a server reconciles, Postgres", isMeasured, "as for the fold"},
	{"againServer", againServer, "µs", micro, "the same, quota-server", isEstimated, "what decoding and merging are of the 0.22 µs that a row takes in all with shared keys (`make bench-ledger`)"},
	{"entryCPU", entryCPU, "µs", micro, "entry, its roll-up moved, Postgres", isMeasured, "`-only size`: 14 to 20 µs, and 27 where each is of a hundred rows, at a load average of 9 to 13; `-only spread`: 15 to 25"},
	{"foldCPU", foldCPU, "µs", micro, "entry, quota-server", isMeasured, "`-only size`: 5.9 to 7.6 µs, likewise"},
	{"clientBytes", clientBytes, "MB", 1e6, "client without tenants", isMeasured, "the [curve of tenants](../bench/curves/report/README.md#tenants-on-one-agent): 3.3 MB with a thousand, which are 0.7 of it"},
	{"tenantBytes", tenantBytes, "bytes", 1, "live tenant on a gateway: its first bucket, its key, a remembered request, its limit's rate and burst", isMeasured,
		"`cd pkg/client && go test -run BytesPerTenant -v .`; 721 where all have the plan's limit as it is ([performance.md](../../docs/performance.md#a-buckets-size))"},
	{"bucketBytes", bucketBytes, "bytes", 1, "each further bucket of it, with a key of 15", isMeasured, "`cd internal/core && go test -run BytesPerBucket -v ./agent`"},
	{"holderBytes", holderBytes, "bytes", 1, "Redis: a holder's record", isEstimated, "the encoding's length"},
	{"stateBytes", stateBytes, "bytes", 1, "Redis: a bucket", isEstimated, "the encoding's length"},
	{"rowBytes", rowBytes, "bytes", 1, "Postgres: a report row", isMeasured, "`-only size`, in reports of 10,000 rows, with LZ4"},
	{"entryBytes", entryBytes, "bytes", 1, "Postgres: an entry with its indexes", isMeasured, "`-only size`: 159 where a key and slot have thirty, of 7,200,000 entries"},
	{"usedBytes", usedBytes, "bytes", 1, "Postgres: a key and slot that is in use, beside its entries", isMeasured, "`-only size`: an entry has 198 where it is the only one of its key and slot, for the indexes have those of one together"},
	{"rollupBytes", rollupBytes, "bytes", 1, "Postgres: a roll-up, of a key and hour", isMeasured, "`-only size`: 421 after two hours in which each moved 360 times, 203 where it moved 12 times"},
	{"keyBytes", keyBytes, "bytes", 1, "Postgres: a key, once", isMeasured, "`-only size`"},
	{"touchBytes", touchBytes, "bytes", 1, "Postgres: a note that an agent touched a tenant, while the agent's epoch is open", isMeasured, "`-only size`: 119 to 125 with 100 and 10 agents"},
	{"idle", idle, "s", 1, "how long a bucket is kept after its last use; two report intervals, if that is longer", isCode, "`client.DefaultIdle`"},
	{"tally", tally, "s", 1, "how often each server reconciles, which reads all that is not folded", isCode, "`tallyEvery` of the server"},
	{"firstMinute", firstMinute, "", 1, "renewals of a lease in its first minute, where there is plenty", isSimulated, "the [curve of terms](../bench/curves/report/README.md#demand-and-how-long-leases-last): a lease of a minute each 7.8 to 9.9 s on average"},
	{"calmDemand", calmDemand, "", 1, "what tenants ask for who are neither beyond their limit nor near it, as part of it", isChosen, "the load test's ask for 0.25 to 0.75"},
	{"nearDemand", nearDemand, "", 1, "what those near it ask for", isChosen, "the dearest row of leases.txt"},
	{"askDemand", askDemand, "/s", 1, "demand for a whole bucket up to which the store lets each request ask", isCode, "`seldom` of the lease step"},
	{"seldomDemand", seldomDemand, "/s", 1, "demand at which such buckets were simulated", isChosen, "from here to `askDemand` the calculator goes from one table to the other"},
	{"oftenDemand", oftenDemand, "/s", 1, "least demand at which others were", isChosen, "twice as much as where it begins"},
	{"crowd", crowd, "", 1, "gateways from which on more of them do not change what each lease costs", isSimulated, "10, 100 and 1,000 gateways of 0.2 to 100 requests a second differ by a sixth at most, 3 and 10 by a third"},
	{"lead", lead, "", 1, "leases of which one is near enough its end to be renewed with one that is due", isCode, "half of a twentieth of the term: `Bucket.Soon`"},
	{"leastTrip", leastTrip, "s", 1, "least that a call waits for others", isCode, "the loop that renews"},
	{"mostTrip", mostTrip, "s", 1, "most of it", isCode, "the loop that renews"},
	{"waiting", waiting, "", 1, "part of the requests that wait, from which on the calculator warns", isChosen, "the load test has 0.001"},
	{"foldable", foldable, "", 1, "part of the time with a fold under way, from which on it warns", isChosen, "one folds at a time"},
	{"heavy", heavy, "TiB", tib, "reports a month, from which on it warns", isChosen, "more than a disk is for"},
}
