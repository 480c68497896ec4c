/** A schema is checked when a message is enqueued, and again when it is read: another process may have written it. */
import { collect, concatMap, json, pipe, Queue, SchemaError, type StandardSchemaV1 } from 'millrace'
import { memoryBackend } from 'millrace/memory'

interface Order {
  readonly sku: string
}

// Any Standard Schema will do: Zod, Valibot, ArkType, or one written by hand.
const orderSchema: StandardSchemaV1<unknown, Order> = {
  '~standard': {
    version: 1,
    vendor: 'by hand',
    validate: (value) =>
      typeof (value as Order | null)?.sku === 'string'
        ? { value: value as Order }
        : { issues: [{ message: 'must be a string', path: ['sku'] }] },
  },
}

const backend = memoryBackend()
const orders = new Queue<Order>('orders', { backend, schema: orderSchema })

try {
  await orders.enqueue({ sku: 7 } as unknown as Order)
} catch (error) {
  if (error instanceof SchemaError) console.log(`${error.code}: ${error.message}`)
}

// Somebody without the schema: an older version of the program, say.
const elsewhere = new Queue<unknown>('orders', { backend, codec: json() })
await elsewhere.enqueueAll([{ payload: { article: 'A-1' } }, { payload: { sku: 'B-2' } }])

const flow = pipe(
  orders.source({ until: 'empty' }),
  concatMap(({ payload }) => `shipped ${payload.sku}`),
)
for (const line of await collect(flow)) console.log(line)
for await (const { payload, bytes, reason } of orders.deadLetters) {
  console.log(payload, Buffer.from(bytes).toString())
  console.log(reason.replace(/message \S+ /, 'message … '))
}
await backend.close()

// Prints:
// ERR_MILLRACE_SCHEMA: payload does not fit the schema: sku: must be a string
// shipped B-2
// undefined {"article":"A-1"}
// DecodeError: message … cannot be decoded: SchemaError: payload does not fit the schema: sku: must be a string
