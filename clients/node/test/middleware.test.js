import assert from 'node:assert/strict'
import http from 'node:http'
import test from 'node:test'
import { Client, hook, middleware } from '../src/index.js'
import { ALLOWED, decides, DENIED, says, withAgent } from './fake.js'

const LIMIT = { limit: 'requests', quota: 5, window_seconds: 60, remaining: 4, reset_seconds: 12 }

/** What an application behind the middleware answers. */
const visits = (answer, block) =>
  withAgent([answer], async (agent) => {
    const quota = new Client(agent.address)
    const limited = middleware(quota)
    const app = http.createServer((request, response) =>
      limited(request, response, (error) => {
        response.statusCode = error ? 500 : 200
        response.end('hello')
      }),
    )
    await new Promise((resolve) => app.listen(0, '127.0.0.1', resolve))
    try {
      const asked = http.request({ port: app.address().port, method: 'POST', path: '//x/../orders/%C3%BC?q=1', headers: { 'X-Tenant': 'acme' } })
      const response = await new Promise((resolve, reject) => asked.on('response', resolve).on('error', reject).end())
      let body = ''
      for await (const part of response) body += part
      block({ status: response.statusCode, headers: response.headers, body }, agent)
    } finally {
      quota.close()
      app.closeAllConnections()
      app.close()
    }
  })

test('allowed', () =>
  visits(decides({ ...ALLOWED, ...LIMIT }), ({ status, headers, body }, agent) => {
    assert.deepEqual([status, body, headers.ratelimit], [200, 'hello', '"requests";r=4;t=12'])
    const attributes = { tenant: 'acme', ip: '127.0.0.1', endpoint: 'POST /orders/ü', method: 'POST' }
    assert.deepEqual(agent.asked[0].body.requests, [{ attributes, units: 1 }])
  }))

test('denied', () =>
  visits(decides({ ...DENIED, ...LIMIT }), ({ status, headers, body }) => {
    assert.deepEqual([status, headers['retry-after'], headers['content-type']], [429, '30', 'application/problem+json'])
    assert.deepEqual(JSON.parse(body)['violated-policies'], ['requests'])
  }))

test('a mistake goes to the application', () =>
  visits(says(400, {}), ({ status }) => assert.equal(status, 500)))

test('a hook of Fastify', () =>
  withAgent([decides({ ...ALLOWED, ...LIMIT }), decides({ ...DENIED, ...LIMIT })], async (agent) => {
    const quota = new Client(agent.address)
    const answers = async () => {
      const said = { headers: {} }
      const reply = {
        header: (name, value) => ((said.headers[name] = value), reply),
        code: (status) => ((said.status = status), reply),
        type: (type) => ((said.type = type), reply),
        send: (body) => ((said.body = JSON.parse(body)), reply),
      }
      const raw = { headers: { 'x-tenant': 'acme' }, method: 'GET', url: '/', socket: {} }
      await hook(quota)({ raw }, reply)
      return said
    }
    const allowed = await answers()
    assert.deepEqual([allowed.status, allowed.headers['X-RateLimit-Remaining']], [undefined, '4'])
    const denied = await answers()
    assert.deepEqual([denied.status, denied.type, denied.body.reason], [429, 'application/problem+json', 'limit'])
    quota.close()
  }))
