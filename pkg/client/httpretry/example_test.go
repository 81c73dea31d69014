package httpretry_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/f4ee788f/quota/pkg/client/httpretry"
)

// A client waits as long as the service asks, and asks again.
func Example() {
	denied := false
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !denied {
			denied = true
			w.Header().Set("Retry-After", "0")
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, "hello")
	}))
	defer service.Close()
	client := http.Client{Transport: httpretry.New(http.DefaultTransport, httpretry.WithPatience(5*time.Second))}
	answer, err := client.Get(service.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	fmt.Println(answer.StatusCode)
	// Output: 200
}
