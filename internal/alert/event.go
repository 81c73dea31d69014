package alert

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// Kinds of events.
const (
	KindQuota    = "quota"    // units of a calendar window, of those that the limit has
	KindSpending = "spending" // minor units of a period's charges, of an amount or a cap
	KindDenials  = "denials"  // share of what was denied, of that in the past: parts per million
	KindCap      = "cap"      // minor units, of the cap that was reached
	KindTest     = "test"
)

// Actor is the name in the audit log for what puts caps in force and lifts them.
const Actor = "system"

// Event is an event as it was told: immutable.
type Event struct {
	Number    int64 // in the order of commits
	ID        string
	Kind      string
	Alert     string // the alert's name; terms.CapName of a cap
	Tenant    string
	Plan      string
	Limit     string // of quota and denials
	Threshold int64  // parts per million
	Period    string // in which it is told of once
	Used, Of  int64  // by kind
	Currency  string
	Action    string // of a cap: terms.CapStop, CapThrottle or CapAlert
	Height    int64  // the block that it was found by
	At        time.Time
	Body      string // what is delivered; set where the event is kept

	Webhooks   []string // where it goes; of an event to be kept
	Deliveries []Delivery
}

// States of deliveries.
const (
	Pending   = "pending"
	Delivered = "delivered"
	Dead      = "dead" // tried for long enough; see Store.Retry
)

// Delivery is the state of an event's delivery to one webhook.
type Delivery struct {
	Number   int64
	Webhook  string
	State    string
	Attempts int64
	Since    time.Time     // when it was made or begun anew: it is tried for a time from then
	Next     time.Time     // when it is tried next
	Tried    time.Time     // last; zero before the first
	Status   int           // HTTP's, of the last attempt; 0 without an answer
	Error    string        // why the last attempt failed
	Waited   time.Duration // of the time since Since: for outages of the webhook to end

	ID, Body, Tenant string // of the event
}

// Words writes an amount with its unit, for people.
func (e *Event) Words(n int64) string {
	switch e.Kind {
	case KindSpending, KindCap:
		return billing.Money{Amount: n, Currency: e.Currency}.String()
	case KindDenials:
		return policy.Percent(n)
	case KindTest:
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// payload is what webhooks get, in the form of Standard Webhooks. Numbers beyond 2^53 do not occur.
type payload struct {
	Type      string      `json:"type"`
	Timestamp string      `json:"timestamp"`
	Data      payloadData `json:"data"`
}

type payloadData struct {
	Number    int64  `json:"number"`
	Alert     string `json:"alert"`
	Tenant    string `json:"tenant,omitempty"`
	Plan      string `json:"plan,omitempty"`
	Limit     string `json:"limit,omitempty"`
	Threshold string `json:"threshold,omitempty"`
	Period    string `json:"period,omitempty"`
	Used      string `json:"used,omitempty"`
	Of        string `json:"of,omitempty"`
	Action    string `json:"action,omitempty"`
	Height    int64  `json:"height,omitempty"`
	Text      string `json:"text"`
}

// Encode makes the event's body, once it has its number.
func (e *Event) Encode() {
	d := payloadData{Number: e.Number, Alert: e.Alert, Tenant: e.Tenant, Plan: e.Plan, Limit: e.Limit, Period: e.Period, Action: e.Action, Height: e.Height, Text: e.String()}
	if e.Kind != KindTest {
		d.Threshold, d.Used, d.Of = policy.Percent(e.Threshold), e.Words(e.Used), e.Words(e.Of)
	} else {
		d.Period = ""
	}
	b, err := json.Marshal(payload{"quota.alert." + e.Kind, e.At.UTC().Format(time.RFC3339), d})
	if err != nil {
		panic(err) // strings and numbers
	}
	e.Body = string(b)
}

// String says it in a sentence.
func (e *Event) String() string {
	switch e.Kind {
	case KindQuota:
		return fmt.Sprintf("tenant %s has used %s of %s units of limit %s since %s: %s", e.Tenant, e.Words(e.Used), e.Words(e.Of), e.Limit, e.Period, policy.Percent(e.Threshold))
	case KindSpending:
		return fmt.Sprintf("tenant %s has spent %s of %s in %s: %s", e.Tenant, e.Words(e.Used), e.Words(e.Of), e.Period, policy.Percent(e.Threshold))
	case KindDenials:
		return fmt.Sprintf("limit %s denies %s of the requests of tenant %s, and denied %s before", e.Limit, e.Words(e.Used), e.Tenant, e.Words(e.Of))
	case KindCap:
		did := map[string]string{terms.CapStop: "its requests are denied", terms.CapThrottle: "its requests are throttled", terms.CapAlert: "nothing else happens"}[e.Action]
		return fmt.Sprintf("tenant %s has spent %s in %s and reached its cap of %s: %s", e.Tenant, e.Words(e.Used), e.Period, e.Words(e.Of), did)
	}
	return "this is a test of webhook " + strings.Join(e.Webhooks, ", ")
}
