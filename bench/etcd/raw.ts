/**
 * What the server does with transactions that stand for nothing: so fast can no queue be that spends one on each message
 * to put it in, one to claim it and one to ack it.
 */
import { Etcd3 } from 'etcd3'
import { PAYLOAD } from '../messages.js'

const VALUE = JSON.stringify(PAYLOAD)

export class Raw {
  readonly #client: Etcd3

  constructor(url: string) {
    this.#client = new Etcd3({ hosts: url })
  }

  /** `count` transactions, of one compare and one put each, `atOnce` at a time. */
  async transact(count: number, atOnce: number): Promise<void> {
    let left = count
    const lane = async (name: string) => {
      while (left > 0) {
        left -= 1
        await this.#client.if(name, 'Version', '>', -1).then(this.#client.put(name).value(VALUE)).commit()
      }
    }
    await Promise.all(Array.from({ length: atOnce }, (_, index) => lane(`raw/${index}`)))
  }

  close(): void {
    this.#client.close()
  }
}

/** One transaction puts a key in, a watch tells of it, another takes it out: the least that waiting can cost. */
export class RawWatch {
  readonly #producer: Etcd3
  readonly #consumer: Etcd3

  constructor(url: string) {
    this.#producer = new Etcd3({ hosts: url })
    this.#consumer = new Etcd3({ hosts: url })
  }

  /** Calls back when a key has been taken out. Fulfils with what ends it, when it watches. */
  async consume(taken: () => void): Promise<() => Promise<void>> {
    const watcher = await this.#consumer.watch().prefix('raw-watch/').create()
    watcher.on('put', async ({ key }) => {
      const name = key.toString()
      const txn = this.#consumer.if(name, 'Version', '==', 1).then(this.#consumer.delete().key(name))
      if ((await txn.commit()).succeeded) taken()
    })
    return () => watcher.cancel()
  }

  async enqueue(number: number): Promise<void> {
    const name = `raw-watch/${number}`
    await this.#producer.if(name, 'Create', '==', 0).then(this.#producer.put(name).value(VALUE)).commit()
  }

  close(): void {
    this.#producer.close()
    this.#consumer.close()
  }
}
