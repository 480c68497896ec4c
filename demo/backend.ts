/** Where the queues of the demo live. In memory they end with the process. */
import { memoryBackend } from 'millrace/memory'

export const backend = memoryBackend()
