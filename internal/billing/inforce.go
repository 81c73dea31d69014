package billing

// InForce returns the plan and policy version that price a unit which names neither. They are the tenant's plan in the
// unit's slot, empty for none, and the version in force then. The first version counts from the hour that it was made
// in, as a tenant's first plan does; before that the number is 0.
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
