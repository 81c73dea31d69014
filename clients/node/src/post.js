// One request to an agent, over connections that are kept.

import http from 'node:http'

const MAX_ANSWER = 4 << 20 // bytes
const IDLE = 60_000 // ms that a connection stays without a request; the agent closes it after 120,000

/** No connection could be had, so nothing was sent. */
export class NotSent extends Error {}

/** Reads HOST:PORT, http://HOST:PORT or unix:PATH into options of http.request. */
export function parseAddress(address) {
  const unix = /^unix:(?:\/\/)?(.+)$/.exec(address)
  if (unix) return { socketPath: unix[1], host: 'localhost' }
  const tcp = /^(?:http:\/\/)?(.+):([0-9]+)\/?$/.exec(address)
  if (tcp && tcp[2] > 0 && tcp[2] < 65536) return { host: tcp[1].replace(/^\[|\]$/g, ''), port: Number(tcp[2]) }
  throw new RangeError(`${JSON.stringify(address)} is no address; HOST:PORT, http://HOST:PORT or unix:PATH`)
}

/** Makes what sends requests, over at most `connections`. Further requests wait for one. */
export class Poster {
  #where
  #agent

  constructor(address, connections) {
    this.#where = parseAddress(address)
    // The connection that was used last is used next.
    this.#agent = new http.Agent({ keepAlive: true, maxSockets: connections, scheduling: 'lifo', timeout: IDLE })
  }

  /** Closes all connections. */
  close() {
    this.#agent.destroy()
  }

  /** Sends and reads within ms: {status, header, body}. Rejects with NotSent, or another error. */
  post({ path, body, key }, ms) {
    return new Promise((resolve, reject) => {
      const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) }
      if (key) headers['Idempotency-Key'] = key
      const request = http.request({ ...this.#where, agent: this.#agent, method: 'POST', path, headers })
      let connected = false
      const timer = setTimeout(() => request.destroy(new Error(`no answer within ${Math.round(ms)} ms`)), ms)
      const fail = (error) => {
        clearTimeout(timer)
        reject(connected ? error : new NotSent(error.message, { cause: error }))
      }
      request.on('socket', (socket) => {
        if (!socket.connecting) connected = true
        else socket.once('connect', () => (connected = true))
      })
      request.on('error', fail)
      request.on('response', (answer) => {
        const parts = []
        let size = 0
        answer.on('data', (part) => {
          size += part.length
          if (size > MAX_ANSWER) answer.destroy(new Error(`an answer of more than ${MAX_ANSWER} bytes`))
          parts.push(part)
        })
        answer.on('error', fail)
        answer.on('end', () => {
          clearTimeout(timer)
          resolve({
            status: answer.statusCode,
            header: (name) => lines(answer.rawHeaders, name),
            body: Buffer.concat(parts).toString(),
          })
        })
      })
      request.end(body)
    })
  }
}

/** The lines of a header. answer.headers would join some of them. */
function lines(raw, name) {
  const found = []
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i].toLowerCase() === name.toLowerCase()) found.push(raw[i + 1])
  }
  return found
}
