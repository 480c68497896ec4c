import { etcdConformance } from './etcd/conformance.js'

await etcdConformance({ first: 2, every: 3 })
