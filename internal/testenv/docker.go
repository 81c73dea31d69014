package testenv

import (
	"context"
	"errors"

	"github.com/f4ee788f/quota/internal/engines"
)

type image struct{ name string }

var redisImage, postgresImage = image{"quota-test-redis"}, image{"quota-test-postgres"}

func (i image) have(context.Context) error { return errors.New("not yet") }
func (i image) keep() image                { return i }
func (i image) launch(context.Context, engines.Command) (engines.Unit, error) {
	return nil, errors.New("not yet")
}
