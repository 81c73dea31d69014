package doors

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/f4ee788f/quota/pkg/client"
)

// described is what openapi.json says of a path that is posted to.
type described struct {
	Post struct {
		RequestBody struct {
			Content map[string]struct {
				Examples map[string]struct{ Value json.RawMessage }
			}
		}
		Responses map[string]json.RawMessage
	}
}

// llm has costs.
const llm = `
costs: [tokens_in, tokens_out]
default_plan: free
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 10/hour, burst: 10, meter: requests}
      - {name: tokens, by: [tenant], rate: 5000/hour, burst: 5000, cost: {tokens_in: 1, tokens_out: 2}, meter: tokens}
`

const bodyType = "application~1json" // in a JSON pointer

// schemas finds the schemas of openapi.json by their JSON pointers.
type schemas struct {
	t        *testing.T
	compiler *jsonschema.Compiler
	paths    map[string]described
}

func readOpenAPI(t *testing.T) *schemas {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		t.Fatal(err)
	}
	s := &schemas{t: t, compiler: jsonschema.NewCompiler()}
	s.compiler.DefaultDraft(jsonschema.Draft4) // of which OpenAPI 3.0 has a part
	if err := s.compiler.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	whole := struct{ Paths map[string]described }{}
	if err := json.Unmarshal(openAPI, &whole); err != nil {
		t.Fatal(err)
	}
	s.paths = whole.Paths
	return s
}

// check reports how a text breaks the schema at a pointer.
func (s *schemas) check(what, pointer string, text []byte) {
	s.t.Helper()
	schema, err := s.compiler.Compile("openapi.json#" + pointer)
	if err != nil {
		s.t.Fatalf("%s: %v", pointer, err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		s.t.Errorf("%s: %v: %s", what, err, text)
		return
	}
	if err := schema.Validate(v); err != nil {
		s.t.Errorf("%s: %v\n%s", what, err, text)
	}
}

// checkAnswer reports how an answer of a path breaks what is said of it.
func (s *schemas) checkAnswer(path string, w *httptest.ResponseRecorder) {
	s.t.Helper()
	what := path + ": " + w.Body.String()
	at := "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/post/responses/200/content/" + bodyType + "/schema"
	typ := "application/json"
	if w.Code != http.StatusOK {
		at, typ = "/components/schemas/Problem", "application/problem+json"
		if s.paths[path].Post.Responses[strconv.Itoa(w.Code)] == nil {
			s.t.Errorf("%s: it is not said that %d is answered", what, w.Code)
		}
	}
	if got := w.Header().Get("Content-Type"); got != typ {
		s.t.Errorf("%s: Content-Type %q, want %q", what, got, typ)
	}
	s.check(what, at, w.Body.Bytes())
}

// Every example of openapi.json is of its schema, is answered 200, and the answer is of its schema; every route is described.
func TestOpenAPIExamples(t *testing.T) {
	s := readOpenAPI(t)
	quota := dialAt(t, startServer(t, llm).GRPCAddr(), client.WithFirstWait(30*time.Second), client.WithMaxWait(30*time.Second))
	reservations := NewReservations(quota, RandomIDKey(), "")
	defer reservations.Close()
	door := NewJSON(quota, reservations, JSONConfig{}, newMetrics(t))
	if got, want := slices.Sorted(maps.Keys(s.paths)), slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(routes)), EventsPath))); !slices.Equal(got, want) {
		t.Errorf("described are %v, served %v", got, want)
	}
	for _, path := range slices.Sorted(maps.Keys(s.paths)) {
		if path == EventsPath {
			continue // of other types: TestEventsExamples
		}
		w := askOf(door, "GET "+path)
		if s.checkAnswer(path, w); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: got %d", path, w.Code)
		}
		at := "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/post/requestBody/content/" + bodyType + "/schema"
		examples := s.paths[path].Post.RequestBody.Content["application/json"].Examples
		if len(examples) == 0 {
			t.Errorf("%s: no example", path)
		}
		for name, e := range examples {
			s.check(path+" "+name, at, e.Value)
			body := string(e.Value)
			if was := regexp.MustCompile(`"id": "([^"]*)"`).FindStringSubmatch(body); was != nil {
				body = strings.Replace(body, was[1], reserved(t, door, `{"attributes":{"tenant":"acme"},"units":1}`), 1)
			}
			w := post(door, path, body)
			if w.Code != http.StatusOK {
				t.Errorf("%s %s: got %d %s", path, name, w.Code, w.Body)
			}
			s.checkAnswer(path, w)
		}
	}
	w := askOf(door, "GET /openapi.json")
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || !bytes.Equal(w.Body.Bytes(), openAPI) {
		t.Errorf("/openapi.json: got %d %v", w.Code, w.Header())
	}
}

// What the document gives as an answer is of its schema, too.
func TestOpenAPIAnswersAreOfTheirSchemas(t *testing.T) {
	s := readOpenAPI(t)
	for path, d := range s.paths {
		for status, text := range d.Post.Responses {
			var r struct {
				Ref     string `json:"$ref"`
				Content map[string]struct{ Example json.RawMessage }
			}
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			if r.Ref != "" {
				continue // checked below, once
			}
			at := "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/post/responses/" + status + "/content/" + bodyType + "/schema"
			s.check(path+" "+status, at, r.Content["application/json"].Example)
		}
	}
	s.check("a problem", "/components/responses/Problem/content/application~1problem+json/schema",
		[]byte(`{"type": "about:blank", "title": "Bad Request", "status": 400, "detail": "a sentence"}`))
}
