package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"

	"github.com/f4ee788f/quota/internal/engines"
)

// opTimeout bounds one command to the Docker engine.
const opTimeout = 20 * time.Second

// image is an image for containers. Ours is built by scripts/test-images without a registry. The public one is used
// where it is there or can be pulled.
type image struct {
	own, public string

	once sync.Once
	name string
	err  error
}

var (
	redisImage    = &image{own: "quota-test-redis", public: "redis:7"}
	postgresImage = &image{own: "quota-test-postgres", public: "postgres:16"}
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// dial opens a connection to the Docker engine for one piece of work. Close it
// after: its idle connections are goroutines.
var dial = func() func() (*testcontainers.DockerProvider, error) {
	setup := sync.OnceFunc(func() {
		// The reaper's image is not available without a registry. The keeper does its work.
		if os.Getenv("TESTCONTAINERS_RYUK_DISABLED") == "" {
			os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
		}
		log.SetDefault(silent{})
	})
	return func() (*testcontainers.DockerProvider, error) {
		setup()
		p, err := testcontainers.ProviderDocker.GetProvider(testcontainers.WithLogger(silent{}))
		if err != nil {
			return nil, err
		}
		return p.(*testcontainers.DockerProvider), nil
	}
}()

// have checks for an engine and an image, once. It pulls the public image if it must.
func (i *image) have(ctx context.Context) error {
	i.once.Do(func() { i.name, i.err = i.find(ctx) })
	return i.err
}

func (i *image) find(ctx context.Context) (name string, err error) {
	if runtime.GOOS != "linux" {
		// The nodes of a cluster name each other to the client by their addresses.
		return "", errors.New("containers with the host's network need Linux")
	}
	p, err := dial()
	if err != nil {
		return "", fmt.Errorf("no engine: %w", err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	health, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := p.Health(health); err != nil {
		return "", fmt.Errorf("no engine: %w", err)
	}
	for _, name := range []string{i.own, i.public} {
		if _, err := p.Client().ImageInspect(ctx, name); err == nil {
			return name, nil
		}
	}
	pull, err := p.Client().ImagePull(ctx, i.public, client.ImagePullOptions{})
	if err == nil {
		err = pull.Wait(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("image %s is not there (scripts/test-images builds it), and %s cannot be pulled: %w", i.own, i.public, err)
	}
	return i.public, nil
}

// boxes starts the units of one engine as containers. A unit started again is its old container, with its files.
type boxes struct {
	image *image

	mu    sync.Mutex
	byDir map[string]*box
}

func (i *image) boxes() *boxes { return &boxes{image: i, byDir: map[string]*box{}} }

// launch is an engines.Launcher. The paths in c are the machine's, not the image's.
func (b *boxes) launch(ctx context.Context, c engines.Command) (engines.Unit, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := dial()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if old := b.byDir[c.Dir]; old != nil {
		if _, err := p.Client().ContainerStart(ctx, old.id, client.ContainerStartOptions{}); err != nil {
			return nil, fmt.Errorf("start %s again: %w", c.Name, err)
		}
		return old, nil
	}
	env := map[string]string{}
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		if name == "PGPASSWORD" {
			name = "POSTGRES_PASSWORD"
		}
		env[name] = value
	}
	made, err := p.RunContainer(ctx, testcontainers.ContainerRequest{
		Image: b.image.name,
		Cmd:   append([]string{c.Path[strings.LastIndexByte(c.Path, '/')+1:]}, c.Args...),
		Env:   env,
		HostConfigModifier: func(h *container.HostConfig) {
			h.NetworkMode = "host"
		},
	})
	if made == nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	u := &box{name: c.Name, id: made.GetContainerID(), quit: "SIGKILL"}
	if strings.HasSuffix(c.Path, "postgres") {
		u.quit = "SIGQUIT"
	}
	b.byDir[c.Dir] = u
	if kept := engines.KeepContainer(u.id); kept != nil || err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, errors.Join(err, kept))
	}
	return u, nil
}

// remove removes the containers, running or not.
func (b *boxes) remove() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, u := range b.byDir {
		err := u.order(context.Background(), func(ctx context.Context, c client.APIClient) error {
			u.unpause(ctx, c)
			_, err := c.ContainerRemove(ctx, u.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			return err
		})
		if err == nil {
			engines.LetContainer(u.id)
		}
		errs = append(errs, err)
	}
	clear(b.byDir)
	return errors.Join(errs...)
}

// box is a container as a unit of an engine.
type box struct{ name, id, quit string }

func (u *box) order(ctx context.Context, do func(context.Context, client.APIClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	p, err := dial()
	if err != nil {
		return err
	}
	if err := errors.Join(do(ctx, p.Client()), p.Close()); err != nil {
		return fmt.Errorf("testenv: container %s: %w", u.name, err)
	}
	return nil
}

func (u *box) running(ctx context.Context) (up bool, err error) {
	err = u.order(ctx, func(ctx context.Context, c client.APIClient) error {
		got, err := c.ContainerInspect(ctx, u.id, client.ContainerInspectOptions{})
		if err == nil {
			up = got.Container.State.Running
		}
		return err
	})
	return up, err
}

// Exited counts a container that cannot be inspected as ended.
func (u *box) Exited() bool {
	up, err := u.running(context.Background())
	return err != nil || !up
}

// unpause is for a Docker engine that refuses to end a paused container. Usually it is not paused, which is no error.
func (u *box) unpause(ctx context.Context, c client.APIClient) {
	_, _ = c.ContainerUnpause(ctx, u.id, client.ContainerUnpauseOptions{})
}

func (u *box) end(ctx context.Context, signal string) error {
	return u.order(ctx, func(ctx context.Context, c client.APIClient) error {
		u.unpause(ctx, c)
		ended := c.ContainerWait(ctx, u.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		if _, err := c.ContainerKill(ctx, u.id, client.ContainerKillOptions{Signal: signal}); err != nil {
			if up, err := u.running(ctx); err == nil && !up {
				return nil
			}
			return err
		}
		select {
		case <-ended.Result:
			return nil
		case err := <-ended.Error:
			return err
		}
	})
}

func (u *box) Kill() error                    { return u.end(context.Background(), "SIGKILL") }
func (u *box) Quit(ctx context.Context) error { return u.end(ctx, u.quit) }

func (u *box) Pause() error {
	return u.order(context.Background(), func(ctx context.Context, c client.APIClient) error {
		_, err := c.ContainerPause(ctx, u.id, client.ContainerPauseOptions{})
		return err
	})
}

func (u *box) Resume() error {
	return u.order(context.Background(), func(ctx context.Context, c client.APIClient) error {
		_, err := c.ContainerUnpause(ctx, u.id, client.ContainerUnpauseOptions{})
		return err
	})
}

func (u *box) Log() (text string) {
	err := u.order(context.Background(), func(ctx context.Context, c client.APIClient) error {
		logs, err := c.ContainerLogs(ctx, u.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "40"})
		if err != nil {
			return err
		}
		defer logs.Close()
		b, err := io.ReadAll(io.LimitReader(logs, 1<<16))
		// Each line comes with a header of eight bytes, most of them zero.
		text = string(slices.DeleteFunc(b, func(c byte) bool { return c < ' ' && c != '\n' }))
		return err
	})
	if err != nil {
		return err.Error()
	}
	return text
}
