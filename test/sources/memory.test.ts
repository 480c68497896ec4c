import { memoryBackend } from 'millrace/memory'
import { conformance } from 'millrace/testing'
import { describe, it } from 'vitest'

conformance({ name: 'memory', backend: () => memoryBackend(), describe, it })
