import {
  type ClientHttp2Session,
  constants,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
  sensitiveHeaders,
} from 'node:http2'

export interface Call {
  readonly method: string
  readonly request: Buffer
  readonly connection: number
}

/** Both ends of a call. */
export interface Ends {
  readonly stream: ServerHttp2Stream
  readonly headers: IncomingHttpHeaders
  readonly upstream: ClientHttp2Session
}

/** What a unary call is answered with: a message, or a code that is not 0 and what it means. */
export type Reply =
  | { readonly code: 0; readonly message: Buffer }
  | { readonly code: number; readonly text: string; readonly message?: undefined }

export interface Answering {
  /** Whether the server gets the call. If not, the answer is asked for at once. */
  readonly isSent: boolean
  /** Says what the client hears. */
  reply(reply: Reply): Reply | 'silence'
  /** The client has hung up before. */
  gone(): void
}

const FRAME_HEAD = 5
const UNKNOWN: Reply = { code: 2, text: 'the server has ended the call without an answer' }

/** Passes on a call of one message each way. `begin` is called when the whole request is there. */
export function passUnary({ stream, headers, upstream }: Ends, begin: (request: Buffer) => Answering): void {
  stream.on('error', () => {})
  gathered(stream, (body) => {
    const answering = begin(body.subarray(FRAME_HEAD))
    stream.once('close', () => answering.gone())
    const answer = (reply: Reply) => {
      const told = answering.reply(reply)
      if (told !== 'silence' && !stream.destroyed) respond(stream, told)
    }
    if (!answering.isSent || upstream.destroyed) return answer(UNKNOWN)
    const sent = upstream.request(forwarded(headers))
    stream.once('close', () => sent.close(constants.NGHTTP2_CANCEL))
    let status: IncomingHttpHeaders = {}
    const note = (more: IncomingHttpHeaders) => {
      status = { ...status, ...more }
    }
    sent.on('error', () => {})
    sent.on('response', note)
    sent.on('trailers', note)
    gathered(sent, (message) => answer(replyOf(status, message)))
    sent.end(body)
  })
}

/** Passes on a call of many messages each way. */
export function passStream(
  { stream, headers, upstream }: Ends,
  { onMessage, onClose }: { onMessage(): void; onClose(): void },
): void {
  stream.on('error', () => {})
  const sent = upstream.request(forwarded(headers))
  sent.on('error', () => {})
  stream.on('data', (chunk: Buffer) => {
    for (let at = 0; at + FRAME_HEAD <= chunk.length; at += FRAME_HEAD + chunk.readUInt32BE(at + 1)) onMessage()
    sent.write(chunk)
  })
  stream.on('end', () => sent.end())
  stream.once('close', () => {
    onClose()
    sent.close(constants.NGHTTP2_CANCEL)
  })
  let trailers: IncomingHttpHeaders = {}
  sent.on('response', (head) => {
    if (!stream.destroyed) stream.respond(forwarded(head), { waitForTrailers: true })
  })
  sent.on('trailers', (more) => {
    trailers = more
  })
  stream.on('wantTrailers', () => stream.sendTrailers(forwarded(trailers)))
  sent.on('data', (chunk) => {
    if (!stream.destroyed) stream.write(chunk)
  })
  sent.on('end', () => {
    if (!stream.destroyed) stream.end()
  })
}

/** Calls back once with all the bytes of a body that has come to its end. */
function gathered(from: NodeJS.ReadableStream, done: (body: Buffer) => void): void {
  const chunks: Buffer[] = []
  from.on('data', (chunk: Buffer) => chunks.push(chunk))
  from.on('end', () => done(Buffer.concat(chunks)))
}

function replyOf(status: IncomingHttpHeaders, body: Buffer): Reply {
  const code = Number(status['grpc-status'] ?? UNKNOWN.code)
  if (code === 0) return { code, message: body.subarray(FRAME_HEAD) }
  return { code, text: decodeURIComponent(String(status['grpc-message'] ?? '')) }
}

function respond(stream: ServerHttp2Stream, reply: Reply): void {
  const head = { ':status': 200, 'content-type': 'application/grpc' }
  if (reply.message === undefined) {
    // As servers do: clients need not understand more.
    const text = reply.text.replaceAll(/[^ -$&-~]/g, encodeURIComponent)
    const failure = { 'grpc-status': String(reply.code), 'grpc-message': text }
    return stream.respond({ ...head, ...failure }, { endStream: true })
  }
  stream.respond(head, { waitForTrailers: true })
  stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
  const frame = Buffer.alloc(FRAME_HEAD)
  frame.writeUInt32BE(reply.message.length, 1)
  stream.end(Buffer.concat([frame, reply.message]))
}

/** Headers as they can be sent again. */
function forwarded(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const { [sensitiveHeaders]: _, connection: __, ...more } = headers as IncomingHttpHeaders & Record<symbol, unknown>
  return more
}
