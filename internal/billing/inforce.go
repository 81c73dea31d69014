package billing

// InForce returns what a unit is priced by that says nothing else: the plan that the tenant has in a slot, empty for none,
// and the number of the policy version in force then. The first version counts from the hour that it was made in, as a
// tenant's first plan does; before that the number is 0.
func InForce(subscriptions []Subscription, versions []Version) func(slot int64) (plan string, version int64) {
	t := newTimeline(&Input{Subscriptions: subscriptions, Versions: versions})
	return func(slot int64) (string, int64) {
		plan := t.plan(slot)
		if v := t.version(slot); v != nil {
			return plan, v.Number
		}
		if len(t.versions) > 0 && floor(slot, 3600) == floor(t.versions[0].From-1, 3600) {
			return plan, t.versions[0].Number
		}
		return plan, 0
	}
}
