// An agent that answers what a test says, and keeps what it was asked.

import http from 'node:http'

export const ALLOWED = { allowed: true, reason: 'limit', status: 200, retry_after_seconds: 0 }
export const DENIED = { allowed: false, reason: 'limit', status: 429, retry_after_seconds: 30 }

/** An answer that is always the same. */
export const says = (status, body, headers = {}) => () => ({ status, body, headers })
/** Decides each request alike. */
export const decides = (decision) => ({ body }) => ({
  status: 200,
  body: { decisions: body.requests.map(() => decision) },
})
export const hangsUp = () => null
export const RESERVED = says(200, { decision: ALLOWED, reservation: { id: 'AQ', expires_seconds: 60 } })

/** Runs the block with an agent of these answers, one after another; the last one stays. */
export async function withAgent(answers, block) {
  const agent = { asked: [], connections: 0 }
  const server = http.createServer(async (request, response) => {
    let text = ''
    for await (const part of request) text += part
    const asked = { path: request.url, body: JSON.parse(text), headers: request.headers }
    agent.asked.push(asked)
    const answer = (answers.length > 1 ? answers.shift() : answers[0])(asked)
    if (!answer) return request.socket.destroy()
    const type = answer.status === 200 ? 'application/json' : 'application/problem+json'
    response.writeHead(answer.status, { 'Content-Type': type, ...answer.headers })
    response.end(typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body))
  })
  server.on('connection', () => agent.connections++)
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  agent.address = `127.0.0.1:${server.address().port}`
  try {
    return await block(agent)
  } finally {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
}
