"""Makes a problem from a live `nn.Module`: writes it as source text and a file of weights. (torch)"""
