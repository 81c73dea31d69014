package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/f4ee788f/quota/internal/core/fault"
)

// The parameters of a REST call are checked as strictly as its body. Otherwise a misspelt one would be left out, and
// ?tennant=acme answered with the usage of all tenants.

type queryKey struct{}

// withQuery keeps a request's parameters for checkQuery, which knows the message that
// they belong to.
func withQuery(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), queryKey{}, r))
}

// checkQuery refuses parameters that are no fields of the call's message, and all of
// them where the message is the body.
func checkQuery(ctx context.Context, message protoreflect.MessageDescriptor) error {
	r, ok := ctx.Value(queryKey{}).(*http.Request)
	if !ok || r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fmt.Errorf("%w: the parameters cannot be read: %w", fault.ErrInvalid, err)
	}
	var allowed []string
	if r.Method == http.MethodGet {
		for i := range message.Fields().Len() {
			allowed = append(allowed, string(message.Fields().Get(i).Name()))
		}
	}
	for given := range query {
		switch {
		case slices.Contains(allowed, given):
		case len(allowed) == 0:
			return fmt.Errorf("%w: parameter %q: this call takes none", fault.ErrInvalid, given)
		default:
			return fmt.Errorf("%w: there is no parameter %q; allowed are %s", fault.ErrInvalid, given, strings.Join(allowed, ", "))
		}
	}
	return nil
}

// queryParser lists the allowed values where the gateway's own parser would only say that a value is wrong.
type queryParser struct{ runtime.DefaultQueryParser }

// Parse sets the message's fields from the parameters.
func (p *queryParser) Parse(message proto.Message, query url.Values, filter *utilities.DoubleArray) error {
	fields := message.ProtoReflect().Descriptor().Fields()
	for name, values := range query {
		field := fields.ByName(protoreflect.Name(name))
		if field == nil {
			continue // checkQuery refuses it
		}
		if len(values) > 1 {
			return fmt.Errorf("%w: %s is given %d times; once is enough", fault.ErrInvalid, name, len(values))
		}
		switch field.Kind() {
		case protoreflect.EnumKind:
			if field.Enum().Values().ByName(protoreflect.Name(values[0])) == nil {
				return fmt.Errorf("%w: %s is %q; it must be %s", fault.ErrInvalid, name, values[0], names(field.Enum()))
			}
		case protoreflect.Int32Kind, protoreflect.Int64Kind:
			if _, err := strconv.ParseInt(values[0], 10, 64); err != nil {
				return fmt.Errorf("%w: %s is %q; it must be a whole number", fault.ErrInvalid, name, values[0])
			}
		default:
		}
	}
	return p.DefaultQueryParser.Parse(message, query, filter)
}

// names lists an enum's values as in a sentence, without the unspecified one.
func names(enum protoreflect.EnumDescriptor) string {
	var all []string
	for i := range enum.Values().Len() {
		if v := enum.Values().Get(i); v.Number() != 0 {
			all = append(all, string(v.Name()))
		}
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// useQueryParser sets it, once: the gateway has one for the whole process.
var useQueryParser = sync.OnceFunc(func() {
	runtime.NewServeMux(runtime.SetQueryParameterParser(new(queryParser)))
})

// routingError answers for paths and methods that REST does not have.
func routingError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if code == http.StatusMethodNotAllowed {
		// The gateway would turn it into a 501.
		runtime.HTTPError(ctx, mux, m, w, r, &runtime.HTTPStatusError{
			HTTPStatus: code, Err: status.Errorf(codes.Unimplemented, "%s is not served at this path", r.Method),
		})
		return
	}
	runtime.DefaultRoutingErrorHandler(ctx, mux, m, w, r, code)
}
