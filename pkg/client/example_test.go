package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// dial is client.Dial(ctx, "quota.internal:7600") for the examples, with patience for a machine that is busy.
func dial() *client.Client {
	quota, err := client.Dial(context.Background(), client.ExampleServer, client.WithFirstWait(time.Minute), client.WithMaxWait(time.Minute))
	if err != nil {
		panic(err)
	}
	return quota
}

// The tenant's plan has a burst of three requests.
func ExampleClient_Allow() {
	ctx := context.Background()
	quota := dial()
	defer quota.Close(ctx)
	for range 4 {
		d := quota.Allow(ctx, client.Tenant("acme"))
		if !d.Allowed {
			fmt.Println("denied by", d.Limit())
			continue
		}
		fmt.Println("allowed")
	}
	// Output:
	// allowed
	// allowed
	// allowed
	// denied by requests
}

// A handle is resolved once, for attributes that are asked about often.
func ExampleClient_Limiter() {
	ctx := context.Background()
	quota := dial()
	defer quota.Close(ctx)
	limiter, err := quota.Limiter(ctx, client.Tenant("globex"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		fmt.Println(limiter.Allow(ctx).Allowed)
	}
	// Output:
	// true
	// true
	// true
	// false
}

// Work that would rather wait than be denied waits its turn: the plan lets fifty mails a second go, one at a time.
func ExampleClient_Wait() {
	ctx := context.Background()
	quota := dial()
	defer quota.Close(ctx)
	for _, mail := range []string{"first", "second", "third"} {
		if d := quota.Wait(ctx, client.Tenant("hooli")); d.Allowed {
			fmt.Println("sent the", mail)
		}
	}
	// Output:
	// sent the first
	// sent the second
	// sent the third
}

// What a request costs may be known only at its end: reserve the most it can be, and commit what it was.
func ExampleClient_Reserve() {
	ctx := context.Background()
	quota := dial()
	defer quota.Close(ctx)
	tenant := client.Tenant("initech")
	r, d := quota.Reserve(ctx, 3, tenant)
	if r == nil {
		fmt.Println("denied by", d.Limit())
		return
	}
	defer r.Cancel() // does nothing after Commit
	if err := r.Commit(1); err != nil {
		fmt.Println(err)
	}
	for range 3 {
		fmt.Println("of the two units that came back:", quota.Allow(ctx, tenant).Allowed)
	}
	// Output:
	// of the two units that came back: true
	// of the two units that came back: true
	// of the two units that came back: false
}

// A request may cost more than one unit: the tenant's plan has a burst of three.
func ExampleClient_AllowN() {
	ctx := context.Background()
	quota := dial()
	defer quota.Close(ctx)
	for _, cost := range []int64{2, 1, 2} {
		fmt.Println(cost, "units:", quota.AllowN(ctx, cost, client.Tenant("umbrella")).Allowed)
	}
	// Output:
	// 2 units: true
	// 1 units: true
	// 2 units: false
}

// Peek takes nothing, and tells what is known here.
func ExampleClient_Peek() {
	ctx := context.Background()
	quota := dial()
	defer quota.Close(ctx)
	tenant := client.Tenant("stark")
	for quota.Allow(ctx, tenant).Allowed {
	}
	d := quota.Peek(ctx, 1, tenant)
	fmt.Println("another would be allowed:", d.Allowed, "by", d.Limit())
	// Output:
	// another would be allowed: false by requests
}

// Several requests are allowed together, or nothing is taken: the tenant's plan has a burst of three.
func ExampleClient_AllowTogether() {
	ctx := context.Background()
	quota := dial()
	defer quota.Close(ctx)
	tenant := []client.Attribute{client.Tenant("tyrell")}
	page, images := client.Request{Units: 1, Attributes: tenant}, client.Request{Units: 2, Attributes: tenant}
	for range 2 {
		decisions := quota.AllowTogether(ctx, []client.Request{page, images})
		fmt.Println("the page:", decisions[0].Allowed, "its images:", decisions[1].Allowed)
	}
	// Output:
	// the page: true its images: true
	// the page: false its images: false
}

// Usage that happened already is booked, whatever is left. What is missing is paid before others are allowed.
func ExampleClient_Book() {
	ctx := context.Background()
	quota := dial()
	defer quota.Close(ctx)
	tenant := client.Tenant("oscorp")
	if err := quota.Book(ctx, client.Request{Units: 5, Attributes: []client.Attribute{tenant}}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("another is allowed:", quota.Allow(ctx, tenant).Allowed)
	// Output:
	// another is allowed: false
}
