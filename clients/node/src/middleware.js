// Middleware: each request is decided before the application sees it.

import { STATUS_CODES } from 'node:http'
import { posix } from 'node:path'

const MOST = 999_999_999_999_999 // the largest integer of a structured field
const PROBLEMS = 'https://iana.org/assignments/http-problem-types#'

/** Middleware of Express, Connect and others that call (request, response, next). */
export function middleware(client, { attributes = attributesOf } = {}) {
  return async (request, response, next) => {
    let decision
    try {
      decision = await client.allow(attributes(request))
    } catch (error) {
      return next(error) // the question is a mistake
    }
    for (const [name, value] of headers(decision)) response.setHeader(name, value)
    if (decision.allowed) return next()
    response.statusCode = decision.status
    response.setHeader('Content-Type', 'application/problem+json')
    response.end(problem(decision))
  }
}

/** A hook of Fastify: app.addHook('onRequest', hook(client)). */
export function hook(client, { attributes = (request) => attributesOf(request.raw) } = {}) {
  return async (request, reply) => {
    const decision = await client.allow(attributes(request))
    for (const [name, value] of headers(decision)) reply.header(name, value)
    if (decision.allowed) return
    return reply.code(decision.status).type('application/problem+json').send(problem(decision))
  }
}

/**
 * tenant (X-Tenant) and user (X-User), which whoever authenticates must set or clear; ip (of the connection), endpoint
 * and method of an http.IncomingMessage.
 */
export function attributesOf(request) {
  const all = {
    tenant: request.headers['x-tenant'],
    user: request.headers['x-user'],
    ip: request.socket?.remoteAddress?.replace(/^::ffff:/, ''),
    // Express takes the mount path off url.
    endpoint: `${request.method} ${cleanPath(decoded(request.originalUrl ?? request.url))}`,
    method: request.method,
  }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value))
}

function decoded(url) {
  const path = url.replace(/^[a-z]+:\/\/[^/?#]*/i, '').split(/[?#]/)[0]
  try {
    return decodeURIComponent(path)
  } catch {
    return path // no encoding that anybody would decode
  }
}

/** A decoded path as limits match it: without empty, . and .. elements. A slash at the end stays. */
export function cleanPath(path) {
  const clean = posix.normalize('/' + path).replace(/(.)\/$/, '$1')
  return path.endsWith('/') && clean !== '/' ? clean + '/' : clean
}

/** What tells the caller of a decision: RateLimit-Policy and RateLimit, X-RateLimit-*, and Retry-After. */
export function headers(decision) {
  const after = decision.allowed ? 0 : Math.ceil(decision.retryAfter)
  const told = []
  if (decision.limit && decision.window > 0) {
    const [quota, window] = perSeconds(decision.quota, decision.window)
    const remaining = after ? 0 : Math.min(Math.max(decision.remaining, 0), quota) // nothing is there for this request
    const reset = Math.ceil(decision.reset)
    const name = string(decision.limit)
    const unit = decision.cost ? `;qu=${string(decision.cost)}` : ''
    // Where nothing is left, only a denial knows when the next unit is there.
    const until = remaining > 0 ? `;t=${reset}` : after ? `;t=${after}` : ''
    told.push(
      ['RateLimit-Policy', `${name};q=${quota}${unit};w=${window}`],
      ['RateLimit', `${name};r=${remaining}${until}`],
      ['X-RateLimit-Limit', String(quota)],
      ['X-RateLimit-Remaining', String(remaining)],
      ['X-RateLimit-Reset', String(Math.max(reset, after))],
    )
  }
  if (after) told.push(['Retry-After', String(after)])
  return told
}

/** A rate in whole seconds, for w knows no others, and never more than the rate. */
function perSeconds(quota, window) {
  const whole = Math.ceil(window)
  if (window !== whole) quota = Math.floor(quota * (whole / window))
  return [Math.min(Math.max(quota, 0), MOST), whole]
}

/** A structured field's string. What it cannot hold becomes "?". */
function string(text) {
  return `"${text.replace(/["\\]/g, '\\$&').replace(/[^ -~]/gu, '?')}"`
}

/** The problem+json body of a denial (RFC 9457). */
export function problem(decision) {
  const { status, reason, detail, limit } = decision
  let [type, title] = ['about:blank', STATUS_CODES[status] ?? 'Denied']
  if (status === 429 || status === 504) {
    type = PROBLEMS + 'quota-exceeded'
    title = 'Request cannot be satisfied as assigned quota has been exceeded'
  } else if (status === 503) {
    type = PROBLEMS + 'temporary-reduced-capacity'
    title = 'Request cannot be satisfied due to temporary server capacity constraints'
  }
  const body = { type, title, status, reason }
  if (detail) body.detail = detail
  if (limit && status !== 503) body['violated-policies'] = [limit]
  return JSON.stringify(body)
}
