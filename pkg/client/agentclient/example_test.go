package agentclient_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/agentclient"
)

// A process that lives shortly asks the node's quota-agent. Here none is there, and the program rather serves than refuses.
func ExampleDial() {
	ctx := context.Background()
	socket := "unix:" + filepath.Join(os.TempDir(), "no-agent.sock") // mostly unix:/run/quota/grpc.sock
	quota, err := agentclient.Dial(ctx, socket, agentclient.WithFailureMode(client.FailOpen))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer quota.Close(ctx)
	d := quota.Allow(ctx, client.Tenant("acme"), client.Endpoint("POST /orders"))
	fmt.Println(d.Allowed, d.Reason)
	// Output: true unknown
}
