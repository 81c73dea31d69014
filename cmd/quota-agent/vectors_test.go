package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// An agent takes every request of the clients' vectors, and its answers have the members of theirs.
func TestVectorsOfBodies(t *testing.T) {
	text, err := os.ReadFile("../../clients/vectors/bodies.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name, Call, Path string
			Request, Answer  json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cases) == 0 {
		t.Fatalf("%d cases, %v", len(file.Cases), err)
	}
	asker := unixClient(startClientsAgent(t))
	defer asker.CloseIdleConnections()
	post := func(path, body string) (answer any) {
		t.Helper()
		response, err := asker.Post("http://agent"+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		b, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &answer); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s %s: got %d %s, %v", path, body, response.StatusCode, b, err)
		}
		return answer
	}
	for _, c := range file.Cases {
		body := string(c.Request)
		if strings.Contains(body, "{id}") {
			reserved, _ := post("/v1/reserve", `{"attributes": {"tenant": "acme"}, "costs": {"tokens_in": 900}}`).(map[string]any)
			reservation, _ := reserved["reservation"].(map[string]any)
			id, _ := reservation["id"].(string)
			body = strings.ReplaceAll(body, "{id}", id)
		}
		var want any
		if err := json.Unmarshal(c.Answer, &want); err != nil {
			t.Fatal(err)
		}
		for _, missing := range membersMissing("answer", want, post(c.Path, body)) {
			t.Errorf("%s: %s", c.Name, missing)
		}
	}
}

// optional are members that a decision has only where a limit decided, or there is more to say, and that an answer has
// only where the decision allowed.
var optional = map[string]bool{
	"limit": true, "cost": true, "quota": true, "window_seconds": true, "remaining": true, "reset_seconds": true, "detail": true, "reservation": true,
}

// membersMissing lists where got has no value of want's kind.
func membersMissing(at string, want, got any) (missing []string) {
	if fmt.Sprintf("%T", want) != fmt.Sprintf("%T", got) {
		return []string{fmt.Sprintf("%s is %v, want the like of %v", at, got, want)}
	}
	switch want := want.(type) {
	case map[string]any:
		for name, value := range want {
			other, is := got.(map[string]any)[name]
			if is || !optional[name] {
				missing = append(missing, membersMissing(at+"."+name, value, other)...)
			}
		}
	case []any:
		if n := len(got.([]any)); n != len(want) {
			return []string{fmt.Sprintf("%s has %d elements, want %d", at, n, len(want))}
		}
		for i := range want {
			missing = append(missing, membersMissing(fmt.Sprintf("%s[%d]", at, i), want[i], got.([]any)[i])...)
		}
	}
	return missing
}
